"""`POST /v1/chat/completions`: OpenAI's chat shape in, OpenAI's chat shape out.

1. Fields that route, stream or bound the answer are read and taken out of the document; every other field, known or
   not, stays in it and travels on, or is refused by the provider's adapter.
2. The `model` of an answer is the capability that gave it; `id` is made of the request id.
3. A message, and the first chunk of each choice, has a role, as OpenAI's has: some engines leave it out, and clients go
   by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.outcome import Problem, Refuse, invalid_request
from terraflow.core.strict_json import NODES_MAX, BadJson, parse_json
from terraflow.gateway.exchange import Closed
from terraflow.gateway.mouths.attachments import attachments_of
from terraflow.gateway.mouths.chat_shape import ChatBody, CustomTool, check, chosen_names
from terraflow.gateway.mouths.errors import openai_error, terraflow_object
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.ports.upstream import NOTHING_BESIDE, Answer, Beside, Chunk, ModelRequest, Usage

_TAKEN_OUT = ("model", "stream", "stream_options", "max_tokens", "max_completion_tokens")

_encode = msgspec.json.Encoder().encode


def parse(raw: bytes, values_max: int = NODES_MAX) -> ModelRequest | Refuse:
    """The neutral request of a body, or INVALID_REQUEST with what is wrong."""
    try:
        document = parse_json(raw, nodes_max=values_max)
    except BadJson as bad:
        return invalid_request("body", bad.rule)
    body = check(document)
    if isinstance(body, Problem):
        return invalid_request(body.field, body.rule)
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        return invalid_request("max_tokens", "must not contradict max_completion_tokens")
    if body.stream_options is not None and not body.stream:
        return invalid_request("stream_options", "is allowed only with stream")
    attached = attachments_of(body)
    for field in _TAKEN_OUT:
        document.pop(field, None)
    return ModelRequest(
        document=document,
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
        output_tokens_max=body.max_completion_tokens or body.max_tokens,
        choices=body.n or 1,
        tool_names=tool_names(body),
        output_schema=_output_schema(document),
        model=body.model,
        size_bytes=len(raw),
        inline_bytes=attached.inline_bytes,
        attachment_tokens_max=attached.tokens_max,
        audio=attached.audio,
    )


def tool_names(body: ChatBody) -> tuple[str, ...]:
    """Every tool that the model could use: the old `functions`, the vendor's own web search, and one that is only
    chosen and not offered are among them, since a model may call what it is told to."""
    names = [t.custom.name if isinstance(t, CustomTool) else t.function.name for t in body.tools or ()]
    names += [function.name for function in body.functions or ()]
    if body.web_search_options is not None:
        names.append("web_search")
    names += dict.fromkeys(name for name in chosen_names(body) if name not in names)
    return tuple(names)


def _output_schema(document: dict[str, Any]) -> dict[str, Any] | None:
    asked = document.get("response_format")
    if asked is None or asked["type"] != "json_schema":
        return None
    schema = asked["json_schema"].get("schema")
    return schema if isinstance(schema, dict) else {}


def usage_object(usage: Usage, beside: Beside) -> dict[str, Any]:
    """Usage as OpenAI's clients read it: cached and audio tokens are part of their totals. Parts that OpenAI alone
    counts are shown where it did."""
    return {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output_total,
        "total_tokens": usage.input_total + usage.output_total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": usage.audio_input,
            **beside.prompt_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": usage.audio_output,
            **beside.completion_tokens,
        },
    }


def render(closed: Closed, created: int) -> bytes:
    """The body of a delivered answer."""
    answer = closed.answer
    assert answer is not None
    return _encode(
        {
            "id": _answer_id(closed.request_id),
            "object": "chat.completion",
            "created": created,
            "model": closed.capability,
            "choices": [_spoken(choice) for choice in answer.choices],
            "usage": usage_object(answer.usage, answer.beside),
            **answer.extras,
            "terraflow": terraflow_object(closed),
        }
    )


def _spoken(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice by rule 3; what it says is there, if only as null."""
    message = choice["message"]
    if message.get("role") and "content" in message:
        return choice
    return choice | {"message": {"content": None, **message, "role": message.get("role") or "assistant"}}


class ChunkWriter:
    """Server-sent events of one streamed answer."""

    def __init__(self, request_id: str, capability: str, created: int, request: ModelRequest) -> None:
        self._envelope = {
            "id": _answer_id(request_id),
            "object": "chat.completion.chunk",
            "created": created,
            "model": capability,
        }
        self._include_usage = request.include_usage
        self._extras: dict[str, Any] = {}
        self._beside = NOTHING_BESIDE
        self._begun: set[int] = set()

    def event(self, chunk: Chunk) -> bytes:
        """One event, empty when the chunk holds nothing for the caller (usage that nobody asked for)."""
        if chunk.beside is not None:
            self._beside = chunk.beside
        if not chunk.choices:
            return b""
        choices = [c if c["index"] in self._begun else self._opened(c) for c in chunk.choices]
        body: dict[str, Any] = {**self._envelope, "choices": choices}
        if chunk.extras:
            self._extras = chunk.extras
            body.update(chunk.extras)
        if self._include_usage:
            body["usage"] = None
        return b"data: " + _encode(body) + b"\n\n"

    def _opened(self, choice: dict[str, Any]) -> dict[str, Any]:
        self._begun.add(choice["index"])
        delta = choice["delta"]
        return choice if delta.get("role") else choice | {"delta": delta | {"role": "assistant"}}

    def ending(self, usage: Usage) -> bytes:
        """What follows the last chunk of a whole answer: usage for callers that asked, then the end mark. Clients take
        what stands beside the choices from the last chunk that there is."""
        if not self._include_usage:
            return b"data: [DONE]\n\n"
        body = {**self._envelope, **self._extras, "choices": [], "usage": usage_object(usage, self._beside)}
        return b"data: " + _encode(body) + b"\n\ndata: [DONE]\n\n"


def error_event(body: bytes) -> bytes:
    """How a stream that cannot be finished ends: an error, and no end mark."""
    return b"data: " + body + b"\n\n"


def whole_as_chunks(answer: Answer) -> list[Chunk]:
    """A collected answer as the chunks of a stream: the content in one delta a choice, then the finish reasons."""
    chunks = []
    begun: Usage | None = msgspec.structs.replace(answer.usage, output=0, reasoning=0, audio_output=0)
    for choice in answer.choices:
        delta = {key: value for key, value in choice["message"].items() if value is not None}
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        opened: dict[str, Any] = {"index": choice["index"], "delta": delta, "finish_reason": None}
        if choice.get("logprobs") is not None:
            opened["logprobs"] = choice["logprobs"]
        chunks.append(Chunk(choices=[opened], extras=answer.extras, begun=begun, beside=answer.beside))
        begun = None
    ended = [{"index": c["index"], "delta": {}, "finish_reason": c["finish_reason"]} for c in answer.choices]
    chunks.append(Chunk(choices=ended, extras=answer.extras, stop_sequence=answer.stop_sequence))
    return chunks


def _answer_id(request_id: str) -> str:
    return "chatcmpl-" + request_id.removeprefix("req_")


CHAT = Mouth(
    name="chat",
    request_id_header=b"x-request-id",
    parse=parse,
    render=render,
    writer=ChunkWriter,
    collected=whole_as_chunks,
    error=openai_error,
    error_event=error_event,
)
