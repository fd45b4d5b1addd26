"""What an error tells a caller, and the shapes in which it does: OpenAI's, and Anthropic's.

1. What is told is the same in both: a code, a message, the `terraflow` object that every body carries. Messages are the
   registry's own words; of the caller's input nothing appears but field paths.
2. A governed outcome's code is in `terraflow.reason_code`; an error raised before governance has none there.
3. A request for a thread is told in Anthropic's own word for it that there is none, so that its clients, whose tool
   runners begin one unasked, send the whole conversation instead.

Source of Anthropic's words: the error types of its client library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import Governed
from terraflow.core.reasons import reason as reason_of
from terraflow.core.types import usd
from terraflow.gateway.exchange import Closed
from terraflow.gateway.mouths.messages_shape import THREAD
from terraflow.gateway.mouths.particulars import particulars

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode

# fmt: off
_TYPES = {
    # OpenAI's word, Anthropic's.
    400: ("invalid_request_error",      "invalid_request_error"),
    401: ("authentication_error",       "authentication_error"),
    403: ("permission_error",           "permission_error"),
    404: ("not_found_error",            "not_found_error"),
    409: ("conflict_error",             "invalid_request_error"),
    413: ("invalid_request_error",      "request_too_large"),
    422: ("unprocessable_entity_error", "invalid_request_error"),
    429: ("rate_limit_error",           "rate_limit_error"),
    500: ("server_error",               "api_error"),
    503: ("service_unavailable_error",  "overloaded_error"),
    504: ("timeout_error",              "timeout_error"),
}
# fmt: on
_ANY_TYPE = ("api_error", "api_error")
_NO_THREADS = {"error_code": "thread_unsupported_request"}


class Told(NamedTuple):
    """What is told, whatever the shape around it."""

    status: int
    code: str
    message: str
    problems: tuple[Problem, ...]
    terraflow: Json


def governed(closed: Closed) -> Told:
    """What is told of a governed refusal."""
    reason = reason_of(closed.reason)
    said = f"{reason.meaning} {reason.action}{particulars(closed.detail, closed.details)}"
    return Told(closed.status, reason.code, said, (), terraflow_object(closed))


def ungoverned(refuse: Refuse, request_id: str | None) -> Told:
    """What is told of an error from before governance; `request_id` is None before there is one."""
    reason = reason_of(refuse.reason)
    problems = [{"field": p.field, "rule": p.rule} for p in refuse.problems]
    said = "; ".join(f"{p.field} {p.rule}" for p in refuse.problems)
    message = f"{reason.meaning} {said + '.' if said else refuse.hint or reason.action}"
    facts = {"request_id": request_id, "detail": refuse.detail, "details": {"problems": problems}}
    return Told(ungoverned_status(refuse), reason.code, message, refuse.problems, facts)


def ungoverned_status(refuse: Refuse) -> int:
    """The status of an error from before governance: UNKNOWN_WORKLOAD is one on batches alone, with its second."""
    row = reason_of(refuse.reason)
    second = row.second if refuse.reason is Governed.UNKNOWN_WORKLOAD else None
    return (None if second is None else second.status) or row.status or 500


def terraflow_object(closed: Closed) -> Json:
    """The facts of a governed outcome, as every governed body carries them."""
    facts: Json = {
        "request_id": closed.request_id,
        "reason_code": Governed.IDEMPOTENCY_REPLAY if closed.replay_of is not None else closed.reason,
        "reasons": closed.reasons,
        "detail": closed.detail,
        "details": closed.details,
        "capability": closed.capability,
        "cost_usd": usd(closed.cost),
    }
    if closed.replay_of is not None:
        facts["original_request_id"] = closed.replay_of
        facts["original_reason_code"] = closed.original_reason
    return facts


def openai_error(told: Told) -> bytes:
    """The body of an error in OpenAI's shape; `param` is the first problem's field path."""
    kind, _ = _TYPES.get(told.status, _ANY_TYPE)
    param = told.problems[0].field if told.problems else None
    error = {"message": told.message, "type": kind, "param": param, "code": told.code}
    return _encode({"error": error, "terraflow": told.terraflow})


def anthropic_error(told: Told) -> bytes:
    """The body of an error in Anthropic's shape, which has a place for the code in `error.code`."""
    _, kind = _TYPES.get(told.status, _ANY_TYPE)
    error: Json = {"type": kind, "message": told.message, "code": told.code}
    if THREAD in told.problems:
        error["details"] = _NO_THREADS
    facts = told.terraflow
    return _encode({"type": "error", "error": error, "request_id": facts["request_id"], "terraflow": facts})
