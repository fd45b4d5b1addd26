"""What a refusal looks like in OpenAI's error shape, and the `terraflow` object that every body carries.

1. Messages are the registry's own words; of the caller's input nothing appears but field paths.
2. A governed outcome's code is in `terraflow.reason_code`; an error raised before governance has none there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.reasons import reason as reason_of
from terraflow.core.types import usd
from terraflow.gateway.exchange import Closed

_encode = msgspec.json.Encoder().encode

# fmt: off
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "unprocessable_entity_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
# fmt: on


def terraflow_object(closed: Closed) -> dict[str, Any]:
    """The facts of a governed outcome, as every governed body carries them."""
    facts: dict[str, Any] = {
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


def governed_error(closed: Closed) -> bytes:
    """The body of a governed refusal."""
    reason = reason_of(closed.reason)
    return _error(closed.status, reason.code, f"{reason.meaning} {reason.action}", None, terraflow_object(closed))


def ungoverned_error(refuse: Refuse, request_id: str | None) -> bytes:
    """The body of an error from before governance. `param` is the first problem's field path."""
    reason = reason_of(refuse.reason)
    message, facts = ungoverned_facts(refuse, request_id)
    param = refuse.problems[0].field if refuse.problems else None
    return _error(ungoverned_status(refuse), reason.code, message, param, facts)


def ungoverned_status(refuse: Refuse) -> int:
    """The status of an error from before governance: UNKNOWN_WORKLOAD is one on batches alone, with its second."""
    row = reason_of(refuse.reason)
    second = row.second if refuse.reason is Governed.UNKNOWN_WORKLOAD else None
    return (None if second is None else second.status) or row.status or 500


def ungoverned_facts(refuse: Refuse, request_id: str | None) -> tuple[str, dict[str, Any]]:
    """The message of an error from before governance, and its `terraflow` object, whatever the shape around them."""
    reason = reason_of(refuse.reason)
    problems = [{"field": p.field, "rule": p.rule} for p in refuse.problems]
    said = "; ".join(f"{p.field} {p.rule}" for p in refuse.problems)
    message = f"{reason.meaning} {said + '.' if said else refuse.hint or reason.action}"
    return message, {"request_id": request_id, "detail": refuse.detail, "details": {"problems": problems}}


def _error(status: int, code: str, message: str, param: str | None, facts: dict[str, Any]) -> bytes:
    error = {"message": message, "type": _TYPES.get(status, "api_error"), "param": param, "code": code}
    return _encode({"error": error, "terraflow": facts})
