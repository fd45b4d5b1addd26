"""A neutral outcome in Anthropic's Messages shape: whole answers, and errors.

1. Thinking comes first, then text, then tool calls in their order, unless the answer says otherwise
   (`core.block_order`). Thinking without a signature (another vendor's) has
   an empty one. A refusal's words are text, and the stop reason says that it is one.
2. `usage.input_tokens` leaves out what was read from or written to a cache, which stands beside it.
3. Error types are Anthropic's, by status; the code is beside them, in `error.code`. Messages are the registry's words.
4. A request for a thread is told in Anthropic's own word for it that there is none, so that its clients, whose tool
   runners begin one unasked, send the whole conversation instead.

Source of the word: the error types of Anthropic's client library.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.anthropic_words import TIERS_USED
from terraflow.core.block_order import in_order, texts_of
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import reason as reason_of
from terraflow.gateway.exchange import Closed
from terraflow.gateway.mouths.errors import terraflow_object, ungoverned_facts, ungoverned_status
from terraflow.gateway.mouths.messages_shape import THREAD
from terraflow.ports.upstream import Usage

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(Json).decode

# fmt: off
STOP_REASONS = {
    "stop":           "end_turn",
    "length":         "max_tokens",
    "tool_calls":     "tool_use",
    "function_call":  "tool_use",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_NO_THREADS = {"error_code": "thread_unsupported_request"}
# fmt: on


def message_id(request_id: str) -> str:
    """The answer's id, made of the request's."""
    return "msg_" + request_id.removeprefix("req_")


def usage_object(usage: Usage) -> Json:
    """Usage as Anthropic's clients read it: every input token is in exactly one of three counts."""
    return {
        "input_tokens": usage.input + usage.audio_input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached_input,
        "output_tokens": usage.output_total,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def stop_of(finish: str | None, stop_sequence: str | None, *, refused: bool) -> str:
    """Anthropic's word for how an answer ended."""
    if refused:
        return "refusal"
    if finish == "stop" and stop_sequence is not None:
        return "stop_sequence"
    return STOP_REASONS.get(finish or "", "end_turn")


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
            "stop_reason": stop_of(choice["finish_reason"], answer.stop_sequence, refused=bool(message.get("refusal"))),
            "stop_sequence": answer.stop_sequence,
            "usage": usage_object(answer.usage) | tier_of(answer.extras),
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
    calls: list[Json] = []
    called = message.get("function_call")
    if called is not None:
        calls.append(_called("toolu_0", called))
    calls += [
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


def governed_error(closed: Closed) -> bytes:
    """The body of a governed refusal."""
    reason = reason_of(closed.reason)
    said = f"{reason.meaning} {reason.action}"
    return _error(closed.status, reason.code, said, closed.request_id, terraflow_object(closed))


def ungoverned_error(refuse: Refuse, request_id: str | None) -> bytes:
    """The body of an error from before governance."""
    reason = reason_of(refuse.reason)
    message, facts = ungoverned_facts(refuse, request_id)
    details = _NO_THREADS if THREAD in refuse.problems else None
    return _error(ungoverned_status(refuse), reason.code, message, request_id, facts, details)


def _error(
    status: int, code: str, message: str, request_id: str | None, facts: Json, details: Json | None = None
) -> bytes:
    error: Json = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message, "code": code}
    if details is not None:
        error["details"] = details
    return _encode({"type": "error", "error": error, "request_id": request_id, "terraflow": facts})
