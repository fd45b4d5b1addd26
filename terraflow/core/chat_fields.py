"""The names of a chat-completions request, as OpenAI's API description lists them (2026-10).

1. Only these names may be repeated in a refusal: any other key of a request is the caller's content.
2. A name that is not here is unknown: it travels on to endpoints that take unknown fields, and is refused by the
   adapters of those that do not.
"""

from __future__ import annotations

CHAT_FIELDS = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model", "moderation", "n",
    "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed",
    "service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools",
    "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
})  # fmt: skip

UNKNOWN_FIELD = "unknown field"
"""What a refusal says instead of a name that is not in `CHAT_FIELDS`."""


def named(field: str) -> str:
    """`field` if it may be repeated, else `UNKNOWN_FIELD`."""
    return field if field in CHAT_FIELDS else UNKNOWN_FIELD
