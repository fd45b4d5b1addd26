"""A neutral request in the words of OpenAI's chat completions.

1. What is sent is the neutral document plus the model, the stream flags and the output limit. Unknown fields
   travel: an engine takes them, OpenAI refuses them by name.
2. What an earlier answer has and OpenAI refuses to hear stays behind: `thinking_blocks` are another vendor's signed
   state, their places and `text_blocks` go with them, and a list of no calls is that of an engine. Thoughts as text are
   for engines, whose templates read them.
3. What only other API shapes have is told in OpenAI's words or refused (`openai_extensions`).
4. Calls' ids that are longer than OpenAI takes, as engines make them, are told in another form.
5. `max_completion_tokens` bounds the reasoning too, so a contract's reasoning budget needs no field here.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from terraflow.contracts.capability import Dialect
from terraflow.ports.upstream import Call
from terraflow.providers.openai_extensions import without_extensions
from terraflow.providers.tool_calls import call_id_for

_encode = msgspec.json.Encoder().encode

_LIMIT_FIELD = {
    Dialect.CURRENT: "max_completion_tokens",
    Dialect.SELF_HOSTED: "max_tokens",
}
_LEFT_BEHIND = {
    Dialect.CURRENT: ("thinking_blocks", "block_order", "text_blocks", "reasoning_content", "reasoning"),
    Dialect.SELF_HOSTED: ("thinking_blocks", "block_order", "text_blocks"),
}
_CALLS = "tool_calls"
_CALL_ID_MAX = 40
_CALL_ID = re.compile(rf".{{0,{_CALL_ID_MAX}}}", re.DOTALL)
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def request_body(model: str, dialect: Dialect, call: Call, *, stream: bool) -> bytes:
    """The JSON that is sent for a call. `stream` is how the vendor is to answer, which is not always how the caller
    asked: a stream that must be whole before it may go is called for whole."""
    document = call.request.document
    if dialect is Dialect.CURRENT and any(map(_has_long_id, document["messages"])):
        # Before the extensions, which name a call in a text.
        document = {**document, "messages": [_with_short_ids(message) for message in document["messages"]]}
    if call.request.extended:
        document = without_extensions(document, dialect)
    body: dict[str, Any] = {"model": model, **document, _LIMIT_FIELD[dialect]: call.output_tokens_max}
    left_behind = _LEFT_BEHIND[dialect]
    if any(_has_more(message, left_behind) for message in document["messages"]):
        body["messages"] = [
            {k: v for k, v in m.items() if k not in left_behind and (v or k != _CALLS)} for m in document["messages"]
        ]
    if stream:
        body.update(_STREAM)
    return _encode(body)


def _has_more(message: dict[str, Any], left_behind: tuple[str, ...]) -> bool:
    return any(field in message for field in left_behind) or (_CALLS in message and not message[_CALLS])


def _has_long_id(message: dict[str, Any]) -> bool:
    if message["role"] == "tool":
        return len(message["tool_call_id"]) > _CALL_ID_MAX
    return any(len(called["id"]) > _CALL_ID_MAX for called in message.get("tool_calls") or ())


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {**message, "tool_call_id": call_id_for(message["tool_call_id"], _CALL_ID)}
    if not message.get("tool_calls"):
        return message
    calls = [{**called, "id": call_id_for(called["id"], _CALL_ID)} for called in message["tool_calls"]]
    return {**message, "tool_calls": calls}
