"""A whole answer in Anthropic's Messages shape.

1. Thinking comes first, then text, then tool calls in their order, unless the answer says otherwise
   (`core.block_order`). Thinking without a signature (another vendor's) has
   an empty one. A refusal's words are text, and the stop reason says that it is one.
2. What Anthropic's API says beside its counts, and of how the answer ended, is shown as it came; another vendor's
   answer has none of it.
3. `usage.input_tokens` leaves out what was read from or written to a cache, which stands beside it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.anthropic_words import TIERS_USED
from terraflow.core.block_order import in_order, texts_of
from terraflow.gateway.exchange import Closed
from terraflow.gateway.mouths.errors import terraflow_object
from terraflow.ports.upstream import Beside, Usage

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(Json).decode

# fmt: off
STOP_REASONS = {
    "stop":           "end_turn",
    "length":         "max_tokens",
    "tool_calls":     "tool_use",
    "content_filter": "refusal",
}
# fmt: on


def message_id(request_id: str) -> str:
    """The answer's id, made of the request's."""
    return "msg_" + request_id.removeprefix("req_")


def usage_object(usage: Usage) -> Json:
    """Usage as Anthropic's clients read it: every input token is in exactly one of three counts. Of thinking nothing is
    said where none was counted: vendors that do not count it apart have it in their output."""
    made = {
        "input_tokens": usage.input + usage.audio_input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached_input,
        "output_tokens": usage.output_total,
    }
    return made | {"output_tokens_details": {"thinking_tokens": usage.reasoning}} if usage.reasoning else made


def stop_of(finish: str | None, stop_sequence: str | None, beside: Beside, *, refused: bool, called: bool) -> Json:
    """Anthropic's words for how an answer ended: its own, where it said one. OpenAI's finish of a call that the caller
    had asked for by its tool's name is `stop`, and so is that of some engines for every call."""
    reason = STOP_REASONS.get(finish or "", "end_turn")
    if refused:
        reason = "refusal"
    elif finish == "stop" and stop_sequence is not None:
        reason = "stop_sequence"
    elif finish == "stop" and called:
        reason = "tool_use"
    reason = beside.stop_reason or reason
    ended = {"stop_reason": reason, "stop_sequence": stop_sequence if reason == "stop_sequence" else None}
    return ended if beside.stop_details is None else ended | {"stop_details": beside.stop_details}


def tier_of(extras: Json) -> Json:
    """The service tier of an answer, if its vendor named one that Anthropic's clients know."""
    tier = TIERS_USED.get(extras.get("service_tier") or "")
    return {} if tier is None else {"service_tier": tier}


def render(closed: Closed, _created: int) -> bytes:
    """The body of a delivered answer."""
    answer = closed.answer
    assert answer is not None
    choice = answer.choices[0]
    message = choice["message"]
    return _encode(
        {
            "id": message_id(closed.request_id),
            "type": "message",
            "role": "assistant",
            "model": closed.capability,
            "content": content_of(message),
            **stop_of(
                choice["finish_reason"],
                answer.stop_sequence,
                answer.beside,
                refused=bool(message.get("refusal")),
                called=bool(message.get("tool_calls")),
            ),
            "usage": usage_object(answer.usage) | tier_of(answer.extras) | answer.beside.usage,
            "terraflow": terraflow_object(closed),
        }
    )


def content_of(message: Json) -> list[Json]:
    """The blocks of a neutral message."""
    order = message.get("block_order")
    thoughts: list[Json] = [_thought(block) for block in message.get("thinking_blocks") or ()]
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought and not thoughts:
        thoughts.append({"type": "thinking", "thinking": thought, "signature": ""})
    if message.get("text_blocks"):
        texts = [_cited(block) for block in message["text_blocks"] if block["text"]]
    else:
        texts = [{"type": "text", "text": text} for text in texts_of(order, message.get("content") or "")]
    if message.get("refusal"):
        texts.append({"type": "text", "text": message["refusal"]})
    calls = [
        _called(call["id"], call.get("function") or call.get("custom") or {})
        for call in message.get("tool_calls") or ()
    ]
    return in_order(order, thoughts, texts, calls)


def _thought(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "index"}


def _cited(block: Json) -> Json:
    made = {"type": "text", "text": block["text"]}
    return made | {"citations": block["citations"]} if block["citations"] else made


def _called(call_id: str, function: Json) -> Json:
    return {"type": "tool_use", "id": call_id, "name": function.get("name") or "", "input": _input(function)}


def _input(function: Json) -> Json:
    """A call's arguments as an object. A model that wrote no object keeps its words, as `unparsed`."""
    arguments = function.get("arguments") or function.get("input")
    if not arguments:
        return {}
    try:
        return _decode_object(arguments)
    except (msgspec.DecodeError, RecursionError):
        return {"unparsed": arguments}
