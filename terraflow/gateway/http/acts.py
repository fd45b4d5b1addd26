"""The acts of the model API on a request that was made before: cancelling it, saying how good its answer was.

1. An application acts on its own requests; another's looks like one that does not exist.
2. An act is no governed request: it has a request id of its own, and no reason header.
"""

from __future__ import annotations

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import usd
from terraflow.evidence import record
from terraflow.gateway import feedback
from terraflow.gateway.http.arrived import Arrived, Edge, read_declared
from terraflow.gateway.http.replies import plain_answer
from terraflow.gateway.http.wire import Reply
from terraflow.gateway.plane import Plane
from terraflow.ports.store import Entry, KeyHolder

CANCEL_WAIT_S = 5.0
"""How long a cancellation waits for its request's end: what was used is posted and recorded in milliseconds."""

FEEDBACKS_MAX = 16
"""Feedbacks that are kept of one request: a mind is changed now and then, and a log is for ever."""


async def cancel(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """End a request that is under way: 200 with how it ended, 202 when its end is not recorded yet; REQUEST_NOT_FOUND
    for any that is not under way.

    `cancelled` false: it came to its own end first. Each of several cancellations at once gets the same answer.
    """
    running, caller, named = edge.plane.running, arrived.caller, arrived.argument
    if not running.cancel(named, (caller.tenant, caller.application)):
        return Refuse(reason=ModelApi.REQUEST_NOT_FOUND)
    ended = await running.wait(named, CANCEL_WAIT_S)
    outcome = await _outcome(edge.plane, caller, named) if ended else None
    body = {
        "object": "request",
        "id": named,
        "cancelled": None if outcome is None else outcome.reason_code == Governed.CANCELLED,
        "reason_code": None if outcome is None else outcome.reason_code,
        "cost_usd": None if outcome is None else usd(outcome.cost_micro_usd),
    }
    return plain_answer(body, arrived.request_id, status=202 if outcome is None else 200)


async def give_feedback(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """Record what the application says of a request that has ended: INVALID_REQUEST for what is not of the shape, or
    one too many; REQUEST_NOT_FOUND for any that has not ended. What was said last is not recorded again."""
    read = await read_declared(edge, arrived, feedback.BODY_BYTES_MAX)
    said = read if isinstance(read, Refuse) else feedback.parse(read[1])
    if isinstance(said, Refuse):
        return said
    async with edge.feedback.of(arrived.argument):
        return await _recorded(edge.plane, arrived, said)


async def _recorded(plane: Plane, arrived: Arrived, said: feedback.Said) -> Reply | Refuse:
    caller, named = arrived.caller, arrived.argument
    entries = await plane.store.find_entries(caller.tenant, caller.application, named)
    if not any(entry.kind == "outcome" for entry in entries):
        return Refuse(reason=ModelApi.REQUEST_NOT_FOUND)
    before = [entry for entry in entries if entry.kind == "feedback"]
    kept = None if not before else record.decode_feedback(before[-1].data)
    if kept is None or feedback.said_by(kept) != said:
        if len(before) >= FEEDBACKS_MAX:
            rule = f"must not be another: of one request {FEEDBACKS_MAX} are kept"
            return invalid_request("body", rule)
        kept = feedback.recorded(said, caller.tenant, caller.application, named, plane.clock.now())
        data = record.encode_feedback(kept)
        await plane.store.finish((Entry(caller.tenant, caller.application, named, "feedback", data),))
    body = {"object": "feedback", "request_id": named, "time": kept.time, **msgspec.structs.asdict(said)}
    return plain_answer(body, arrived.request_id)


async def _outcome(plane: Plane, caller: KeyHolder, named: str) -> record.Outcome | None:
    for entry in await plane.store.find_entries(caller.tenant, caller.application, named):
        if entry.kind == "outcome":
            found = record.decode(entry.data)
            assert isinstance(found, record.Outcome)
            return found
    return None
