"""Step 18: settle and record, once, whatever happened before.

1. Money settled, the outcome's leaf, the answer that is kept and the key's fate are one transaction, durable before
   the answer goes out. If it cannot be written the answer is withheld, EVIDENCE_UNAVAILABLE, and recovery gets what is
   known of the request.
2. Sheds and rate refusals are appended without waiting.
3. What the request holds is let go last, each thing in every case: an attempt that a fault left open, a slot, the
   request's place, those who wait for it.
"""

from __future__ import annotations

import logging
import math

import msgspec

from terraflow.core.outcome import Refuse, Replay
from terraflow.core.reasons import Governed, first_of, status_of
from terraflow.core.reasons import reason as reason_of
from terraflow.core.types import MICRO, Instant
from terraflow.gateway.exchange import Closed, Ending, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.kept import KeptAnswer
from terraflow.gateway.kept import decode as decode_kept
from terraflow.gateway.kept import encode as encode_kept
from terraflow.gateway.plane import Plane
from terraflow.gateway.recording import intent_entry, outcome_entry
from terraflow.gateway.recover import Unrecorded
from terraflow.ports.store import Entry, KeyOutcome, Settlement, StoredAnswer, StoreUnavailable

log = logging.getLogger("terraflow.close")

RECORDED_LATE = "recorded_late"
"""The detail of an outcome that could not be recorded when its caller was answered, and was later."""

_RETRIED = frozenset((429, 500, 503, 504))
"""Statuses that invite a retry: they free an idempotency key, as do a code that says so whatever its status, and a
caller's leaving its stream, whose answer nobody has."""


async def close(plane: Plane, x: Exchange, ending: Ending) -> Closed:
    """The request's outcome, recorded. Never raises."""
    try:
        try:
            closed = _closed(x, ending)
            await _record(plane, x, closed)
        except StoreUnavailable:
            x.answer = None
            closed = _refused(x, Refuse(reason=Governed.EVIDENCE_UNAVAILABLE))
            plane.recovery.ask(_unrecorded(plane, x, closed))
        except Exception as fault:
            log.error("closing failed: %s", place_of(fault))
            closed = await _record_fault(plane, x)
    finally:
        _let_go(plane, x)
    plane.telemetry.closed(x, closed)
    return closed


def _let_go(plane: Plane, x: Exchange) -> None:
    for part in (_give_up_trial, _give_back_slot, _leave):
        try:
            part(plane, x)
        except Exception as fault:
            log.error("letting go failed: %s", place_of(fault))
    plane.running.ended(x.request_id)


def _give_up_trial(plane: Plane, x: Exchange) -> None:
    if x.trial is not None:
        capability = x.trial.route.capability.id
        x.elsewhere_s += plane.clock.monotonic() - x.trial.started
        plane.capacity.give_back(capability)
        plane.health.abandoned(capability, x.trial.started)


def _give_back_slot(plane: Plane, x: Exchange) -> None:
    if x.held is not None:
        plane.capacity.give_back(x.held)
        plane.health.abandoned(x.held, math.inf)


def _leave(plane: Plane, x: Exchange) -> None:
    if x.place is not None:
        plane.admission.leave(x.place, x.elsewhere_s)


async def _record_fault(plane: Plane, x: Exchange) -> Closed:
    """What closing could not say is at least recorded as a fault, with nothing released."""
    x.answer = None
    closed = _refused(x, Refuse(reason=Governed.INTERNAL_ERROR))
    try:
        await _record(plane, x, closed)
    except Exception:
        plane.recovery.ask(_unrecorded(plane, x, closed))
    return closed


def _unrecorded(plane: Plane, x: Exchange, closed: Closed) -> Unrecorded | None:
    """What recovery is to record of the request: what the caller was told, and the money that it is known to have
    used."""
    late = msgspec.structs.replace(closed, detail=RECORDED_LATE)
    try:
        return Unrecorded(
            intent=intent_entry(plane, x, None),
            outcome=outcome_entry(plane, x, late),
            settlements=_settlements(x),
            called=x.attempts_opened > 0,
        )
    except Exception as fault:
        log.error("a request cannot be remembered: %s", place_of(fault))
        return None


def _settlements(x: Exchange) -> tuple[Settlement, ...]:
    return () if x.reservation is None else (Settlement(x.reservation.id, x.posting),)


async def _record(plane: Plane, x: Exchange, closed: Closed) -> None:
    intent = () if x.intent_recorded else (intent_entry(plane, x, None),)
    entries: tuple[Entry, ...] = (*intent, outcome_entry(plane, x, closed))
    if x.note_only and not x.keyed:
        plane.store.note(entries)
        return
    kept, key = _kept_answer(plane, x, closed), _key_outcome(x, closed)
    await plane.store.finish(entries, _settlements(x), answer=kept, key=key)
    x.reservation = None


def _closed(x: Exchange, ending: Ending) -> Closed:
    if type(ending) is Refuse:
        return _refused(x, ending)
    if type(ending) is Replay:
        return _replayed(x, ending)
    reasons = list(x.reasons)
    if Governed.CACHE_HIT not in reasons:
        reasons.append(Governed.PERMITTED)
    reason = first_of(reasons)
    return Closed(
        request_id=x.request_id,
        reason=reason,
        status=status_of(reason),
        reasons=tuple(reasons),
        capability=_capability(x),
        cost=x.cost,
        savings=x.savings,
        answer=x.answer,
        structured=x.request.output_schema is not None,
    )


def _capability(x: Exchange) -> str | None:
    """The capability that answered, else the one that was pinned."""
    if x.answered_by is not None:
        return x.answered_by.capability.id
    return x.capability or (None if x.resolution is None else x.resolution.pinned)


def _refused(x: Exchange, refuse: Refuse) -> Closed:
    assert isinstance(refuse.reason, Governed)
    return Closed(
        request_id=x.request_id,
        reason=refuse.reason,
        status=status_of(refuse.reason),
        reasons=(refuse.reason,),
        detail=refuse.detail,
        details=refuse.details,
        retry_after_s=refuse.retry_after_s,
        capability=_capability(x),
        cost=x.cost,
        retry=reason_of(refuse.reason).retry,
    )


def _replayed(x: Exchange, replay: Replay) -> Closed:
    """The original's status and answer; header and code say that it is a replay, and it costs nothing."""
    kept = None if replay.answer is None else decode_kept(replay.answer)
    return Closed(
        request_id=x.request_id,
        reason=Governed.IDEMPOTENCY_REPLAY,
        status=replay.status,
        reasons=(Governed.IDEMPOTENCY_REPLAY,),
        answer=None if kept is None else kept.answer,
        structured=x.request.output_schema is not None,
        replay_of=replay.request_id,
        original_reason=replay.reason,
        capability=_capability(x) if kept is None else kept.capability,
        retry=False,
    )


def _key_outcome(x: Exchange, closed: Closed) -> KeyOutcome | None:
    if not x.keyed or x.key_digest is None:
        return None
    return KeyOutcome(
        tenant=x.caller.tenant,
        application=x.caller.application,
        key=x.key_digest,
        request_id=x.request_id,
        keep=not (closed.status in _RETRIED or reason_of(closed.reason).retry or closed.reason is Governed.CANCELLED),
        status=closed.status,
        reason=closed.reason,
    )


def _kept_answer(plane: Plane, x: Exchange, closed: Closed) -> StoredAnswer | None:
    """A delivered answer, kept for the key's replay or for the response cache, each by its own time."""
    answer = closed.answer if x.flow is None else x.flow.answer
    if answer is None or closed.status >= 400 or (not x.keyed and x.cache_key is None):
        return None
    if closed.replay_of is not None or (x.original_request_id is not None and not x.keyed):
        return None
    now = plane.clock.now()
    keep_s = plane.limits.answer_keep_s if x.keyed else 0
    rule = None if x.resolution is None else x.resolution.workload.contract.response_cache
    cache_s = rule.ttl_s if rule is not None and x.cache_key is not None and x.original_request_id is None else 0
    capability = closed.capability or ""
    kept = KeptAnswer(answer=answer, capability=capability, fresh_until=Instant(now + cache_s * MICRO))
    return StoredAnswer(
        tenant=x.caller.tenant,
        request_id=x.request_id,
        data=encode_kept(kept),
        expires_at=Instant(now + max(keep_s, cache_s) * MICRO),
        cache_key=x.cache_key if cache_s else None,
        producer=capability,
        original=x.original_request_id,
    )
