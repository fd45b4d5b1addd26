"""One item of a batch, run as a governed request of its own.

1. It goes through the pipeline like any request, under an idempotency key that no caller can send; its answer is stored
   with its outcome, in one transaction, so that a crash afterwards loses neither.
2. What a crash left is decided by the record alone. Without a leaf nothing was called, and the item may run. With an
   outcome it has ended as the outcome says, with the stored answer if there was one; it never runs again.
3. Nobody waits for it: it has the longest time that the plane gives, so that it can wait for a place among the others.
4. A refusal that says what the plane lacks at the moment, before anything was called, is no result: the item may run
   later. LATER lists these; an item that gave way (`running`, rule 4) is among them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.resolve import resolve
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.reasons import reason as reason_of
from terraflow.core.types import DATA_CLASSES, MICRO, SENSITIVE_TYPES, Instant, Priority, RequestId
from terraflow.evidence import record
from terraflow.gateway.batches import lines
from terraflow.gateway.declaring import combined
from terraflow.gateway.exchange import Closed, Declared, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.kept import decode as decode_kept
from terraflow.gateway.mouths import errors
from terraflow.gateway.mouths.anthropic_messages import MESSAGES
from terraflow.gateway.mouths.invocations import INVOCATIONS
from terraflow.gateway.mouths.mouth import Declaring, Mouth
from terraflow.gateway.mouths.openai_chat import CHAT
from terraflow.gateway.pipeline import govern
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import INTERRUPTED, BatchStops, PlaneStops, Presence
from terraflow.ports.batches import Batch, BatchItem
from terraflow.ports.store import KeyHolder
from terraflow.ports.upstream import ModelRequest

log = logging.getLogger("terraflow.batches")

INVOCATIONS_PATH = "/v1/invocations"
ENDPOINTS: Mapping[str, Mouth] = MappingProxyType(
    {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES, INVOCATIONS_PATH: INVOCATIONS}
)
"""What a batch's lines may be for, and the mouth that reads and answers them."""

LATER = frozenset(
    (
        Governed.RATE_LIMITED,
        Governed.QUEUE_SHED,
        Governed.TENANT_QUEUE_LIMIT,
        Governed.TIER_NOT_AVAILABLE,
        Governed.PROVIDER_UNHEALTHY,
        Governed.DEADLINE_EXPIRED,
        Governed.BUNDLE_INVALID,
        Governed.BUNDLE_EXPIRED,
        Governed.EVIDENCE_UNAVAILABLE,
    )
)
_STOPPED = frozenset((ending.reason, ending.detail) for ending in (INTERRUPTED[PlaneStops], INTERRUPTED[BatchStops]))


class Result(msgspec.Struct, frozen=True):
    """How an item ended: its line."""

    completed: bool
    line: bytes


class Later(msgspec.Struct, frozen=True):
    """It did nothing, and may run again; the other items of its batch may after `retry_after_s`."""

    retry_after_s: int | None = None


def key_of(batch: Batch, no: int) -> str:
    """The idempotency key of an item: no header can hold its second character."""
    return f"batch\n{batch.id}\n{no}"


def digest_of_key(batch: Batch, no: int) -> str:
    """The same key as the store knows it."""
    return hashlib.sha256(key_of(batch, no).encode()).hexdigest()


def above_p3(bundle: Bundle, caller: KeyHolder, workload: str | None, model: str | None, now: Instant) -> Refuse | None:
    """BATCH_REQUIRES_P3 when the workload that these name has another priority, UNKNOWN_WORKLOAD when there is none.
    Any other refusal is each item's own."""
    found = resolve(bundle, caller.tenant, caller.application, workload, model, now)
    if isinstance(found, Refuse):
        return found if found.reason is Governed.UNKNOWN_WORKLOAD else None
    return None if found.workload.priority is Priority.P3 else Refuse(reason=ModelApi.BATCH_REQUIRES_P3)


async def run(plane: Plane, batch: Batch, item: BatchItem, presence: Presence) -> Result | Later:
    """Run an item that was taken as `item.request_id`; `presence` asks it to give way."""
    assert item.request_id is not None and item.data is not None
    mouth, given = ENDPOINTS[batch.endpoint], lines.given(item.data)
    caller = KeyHolder(batch.tenant, batch.application, batch.key_id)
    body = bytes(given.body)
    try:
        read = await _read(plane, batch, caller, mouth, body)
    except Exception as fault:
        # Run again it would fail again, and hold its batch up for as long as it has.
        log.error("an item could not be read: %s", place_of(fault))
        read = Refuse(reason=Governed.INTERNAL_ERROR)
    if isinstance(read, Refuse):
        plane.telemetry.turned_away(read, item.request_id, caller)
        return refused(batch, item, read)
    request, declared = read
    # A deadline that is not declared would be the contract's (rule 3).
    deadline_ms = declared.deadline_ms or plane.limits.deadline_ms_max
    x = Exchange.begun(
        RequestId(item.request_id),
        mouth.name,
        caller,
        msgspec.structs.replace(declared, deadline_ms=deadline_ms, idempotency_key=key_of(batch, item.no)),
        request,
        body,
        received_at=plane.clock.now(),
        started=plane.clock.monotonic(),
        deadline_ms_max=plane.limits.deadline_ms_max,
        presence=presence,
    )
    closed = await govern(plane, x)
    assert closed is not None
    if may_run_later(closed.reason, closed.detail, called=bool(x.attempts) or x.trial is not None):
        # Only the item that pins a capability has to wait for that one.
        return Later(None if closed.reason is Governed.PROVIDER_UNHEALTHY else closed.retry_after_s)
    return _result(mouth, closed, given.custom_id, x.received_at)


def refused(batch: Batch, item: BatchItem, refuse: Refuse) -> Result:
    """The result of an item that is answered with an error from outside governance."""
    assert item.request_id is not None and item.data is not None
    mouth, told = ENDPOINTS[batch.endpoint], errors.ungoverned(refuse, item.request_id)
    custom_id = lines.given(item.data).custom_id
    return Result(False, lines.answered(item.request_id, custom_id, told.status, mouth.error(told)))


async def _read(
    plane: Plane, batch: Batch, caller: KeyHolder, mouth: Mouth, body: bytes
) -> tuple[ModelRequest, Declared] | Refuse:
    """The item's request and what is declared of it, or why it is none."""
    request = await _parsed(plane, mouth, body)
    if isinstance(request, Refuse):
        return request
    said = Declared(
        workload=batch.workload,
        data_class=None if batch.data_class is None else DATA_CLASSES[batch.data_class],
        sensitive_types=frozenset(SENSITIVE_TYPES[name] for name in batch.sensitive_types),
    )
    declared = combined(said, request.declared) if isinstance(request, Declaring) else said
    if isinstance(declared, Refuse):
        return declared
    bundle = plane.bundles.active()
    if type(bundle) is Bundle:
        # A bundle that came since may have changed the workload's priority.
        refuse = above_p3(bundle, caller, declared.workload, request.model, plane.clock.now())
        if refuse is not None and refuse.reason is ModelApi.BATCH_REQUIRES_P3:
            return refuse
    return request, declared


async def _parsed(plane: Plane, mouth: Mouth, body: bytes) -> ModelRequest | Refuse:
    return await plane.turns.parsed(partial(mouth.parse, body, plane.limits.body_values_max), len(body))


def may_run_later(reason: Governed, detail: str, *, called: bool) -> bool:
    """Whether an item that ended so may run again (rule 4)."""
    return not called and (reason in LATER or (reason, detail) in _STOPPED)


async def from_record(
    plane: Plane, batch: Batch, item: BatchItem, outcome: record.Outcome, kept: bytes | None
) -> Result:
    """The result of an item whose request has ended without its line (rule 2); `kept` is its stored answer. What only
    the request says of how an answer is told is read of it once more."""
    assert item.request_id is not None and item.data is not None
    mouth, given = ENDPOINTS[batch.endpoint], lines.given(item.data)
    answer = None if kept is None else decode_kept(kept)
    request = None
    if answer is not None:
        request = await _parsed(plane, mouth, bytes(given.body))
    closed = Closed(
        request_id=item.request_id,
        reason=Governed(outcome.reason_code),
        status=outcome.status,
        reasons=tuple(Governed(code) for code in outcome.reasons),
        detail=outcome.detail or "",
        capability=outcome.capability,
        cost=outcome.cost_micro_usd,
        answer=None if answer is None else answer.answer,
        structured=isinstance(request, ModelRequest) and request.output_schema is not None,
    )
    if answer is None and outcome.status < 400:
        gone = Governed.IDEMPOTENCY_REPLAY_NO_CONTENT
        original = {"original_request_id": item.request_id, "original_reason_code": outcome.reason_code}
        closed = msgspec.structs.replace(
            closed, reason=gone, status=reason_of(gone).status or 409, reasons=(gone,), details=original
        )
    return _result(mouth, closed, given.custom_id, plane.clock.now())


def _result(mouth: Mouth, closed: Closed, custom_id: str, at: Instant) -> Result:
    completed = closed.answer is not None
    body = mouth.render(closed, at // MICRO) if completed else mouth.error(errors.governed(closed))
    return Result(completed, lines.answered(closed.request_id, custom_id, closed.status, body))
