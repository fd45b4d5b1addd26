"""What callers ask of the simulated engine, parsed: lenient where engines are, and bounded.

1. Fields that change only the words (temperature, stop …) are accepted and mean nothing here.
2. Messages and tools become tokens as one prompt through `Tokens`; parts other than text are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

PROMPT_TOKENS_MAX = 1 << 20
OUTPUT_TOKENS_MAX = 1 << 16


class Refused(ValueError):
    """A request that this engine does not take, in words for its caller."""


class Tokens(Protocol):
    """A tokenizer with a chat template; None for what it cannot take."""

    def text(self, text: str) -> Sequence[int] | None:
        """Text alone."""
        ...

    def messages(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> Sequence[int] | None:
        """A chat, up to where its answer begins."""
        ...


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


class _Body(msgspec.Struct):
    model: str
    messages: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None
    prompt: str | list[int | str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: int | None = 1


class Asked(msgspec.Struct, frozen=True):
    """One request, as the engine works on it."""

    model: str
    prompt: Sequence[int]
    output_tokens: int
    cut: bool
    """Whether the caller's bound ends the output, rather than the engine."""
    stream: bool
    include_usage: bool
    chat: bool


_BODY = msgspec.json.Decoder(_Body)


def parse(body: bytes, *, chat: bool, tokens: Tokens, output_tokens: int) -> Asked:
    """A body of /v1/chat/completions or /v1/completions; `output_tokens` is what an answer has unless less is asked
    for. Raises Refused."""
    try:
        asked = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise Refused(str(fault)) from None
    if asked.n not in (None, 1):
        raise Refused("n is 1 here")
    prompt = _chat(asked, tokens) if chat else _plain(asked, tokens)
    if prompt is None:
        raise Refused("the prompt cannot be tokenized, or is empty or too long")
    if not 0 < len(prompt) <= PROMPT_TOKENS_MAX:
        raise Refused(f"the prompt has {len(prompt)} tokens; 1 to {PROMPT_TOKENS_MAX} go")
    bound = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if bound is not None and not 1 <= bound <= OUTPUT_TOKENS_MAX:
        raise Refused(f"max_tokens is within 1 and {OUTPUT_TOKENS_MAX}")
    return Asked(
        model=asked.model,
        prompt=prompt,
        output_tokens=output_tokens if bound is None else min(bound, output_tokens),
        cut=bound is not None and bound < output_tokens,
        stream=bool(asked.stream),
        include_usage=asked.stream_options is not None and bool(asked.stream_options.include_usage),
        chat=chat,
    )


def _chat(asked: _Body, tokens: Tokens) -> Sequence[int] | None:
    if not asked.messages:
        raise Refused("messages is missing or empty")
    for message in asked.messages:
        if not isinstance(message.get("role"), str):
            raise Refused("a message has a role")
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                    raise Refused("a content part that is not text")
        elif content is not None and not isinstance(content, str):
            raise Refused("content is a text or a list of parts")
    return tokens.messages(asked.messages, asked.tools)


def _plain(asked: _Body, tokens: Tokens) -> Sequence[int] | None:
    prompt = asked.prompt
    if isinstance(prompt, str):
        return tokens.text(prompt)
    if not prompt:
        raise Refused("prompt is missing or empty")
    if isinstance(prompt[0], str):
        if len(prompt) != 1:
            raise Refused("one prompt a request here")
        return tokens.text(prompt[0])
    ids = [each for each in prompt if isinstance(each, int) and 0 <= each < 1 << 32]
    if len(ids) != len(prompt):
        raise Refused("token ids are within 0 and 2^32 - 1")
    return ids
