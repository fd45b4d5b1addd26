"""Requests that a crash, or a store that was gone, left without an outcome are brought to their recorded end.

1. What the process still knows of a request (`Unrecorded`) is recorded as it was: its own outcome, and the money that
   it is known to have used. A reservation that it did not know of was never used, and is released.
2. Of any other, a paid call that may have started is posted at its worst case; what cannot have started is released.
   Its outcome says so: INTERNAL_ERROR, `recovered`, with what was posted.
3. An idempotency key whose request may have reached a provider, paid or not, stays taken, so that the same key never
   makes a second call; its replay says that the answer is not stored. A key whose request cannot have reached one, or
   that is held by a request that left nothing else, is free.
4. Many are closed at once, so that they share the disk's time. One that cannot be closed keeps no other from it; what
   another verb has resolved meanwhile is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from terraflow.core.reasons import Governed, status_of
from terraflow.evidence import record
from terraflow.gateway.faults import place_of
from terraflow.gateway.running import Running
from terraflow.ports.runtime import Clock
from terraflow.ports.store import (
    Entry,
    KeyOutcome,
    Orphan,
    Reservation,
    Settlement,
    Store,
    StoreConflict,
    StoreUnavailable,
)

log = logging.getLogger("terraflow.recover")

_ANSWER_LOST = 200
"""The status a kept key is ended with when its request may have been answered: a replay then finds no content."""

_AT_ONCE = 128
"""Requests closed at a time: what a transaction of the store takes."""

REMEMBERED_MAX = 1_000
"""Requests that are remembered while the store is gone, at a few KB each; those that reserved money go first."""


class Unrecorded(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request whose outcome could not be recorded: its leaves, what its reservation comes to, and
    whether a provider was called for it."""

    intent: Entry
    outcome: Entry
    settlements: tuple[Settlement, ...]
    called: bool


async def recover(store: Store, clock: Clock, running: Running, known: Mapping[str, Unrecorded] | None = None) -> int:
    """Close every orphan that is not running now; how many were closed.

    Raises StoreUnavailable, or the first fault that kept a request from being closed, once the others are.
    """
    orphans = {orphan.request_id: orphan for orphan in await store.orphans() if orphan.request_id not in running}
    known = {} if known is None else known
    left = list(dict.fromkeys((*orphans, *known)))
    closed, overtaken, faults = 0, 0, []
    for start in range(0, len(left), _AT_ONCE):
        some = left[start : start + _AT_ONCE]
        ended = await asyncio.gather(
            *(_end(store, clock, orphans.get(r), known.get(r)) for r in some), return_exceptions=True
        )
        closed += ended.count(None)
        overtaken += sum(isinstance(fault, StoreConflict) for fault in ended)
        faults += [fault for fault in ended if fault is not None and not isinstance(fault, StoreConflict)]
        if any(isinstance(fault, StoreUnavailable) for fault in faults):
            break
    if closed:
        log.warning("%d requests without an outcome were closed", closed)
    if overtaken:
        log.warning("%d requests were left as they are: something else had closed them", overtaken)
    for fault in faults:
        raise fault
    return closed


async def _end(store: Store, clock: Clock, orphan: Orphan | None, known: Unrecorded | None) -> None:
    if known is not None:
        await _record(store, known, orphan)
    elif orphan is not None:
        await _close(store, clock, orphan)


async def _record(store: Store, known: Unrecorded, orphan: Orphan | None) -> None:
    """Rule 1. The verb that failed may have taken effect after all: then nothing is left to do."""
    outcome = known.outcome
    there = {e.kind for e in await store.find_entries(outcome.tenant, outcome.application, outcome.request_id)}
    if outcome.kind in there:
        return
    posted = {settlement.reservation_id: settlement.posted for settlement in known.settlements}
    held = () if orphan is None else orphan.open_reservations
    settlements = tuple(Settlement(reservation.id, posted.get(reservation.id)) for reservation in held)
    entries = (outcome,) if known.intent.kind in there else (known.intent, outcome)
    key = None if orphan is None or orphan.keyed is None else _key(orphan, orphan.keyed, keep=known.called)
    await store.finish(entries, settlements, key=key)


async def _close(store: Store, clock: Clock, orphan: Orphan) -> None:
    key = None if orphan.keyed is None else _key(orphan, orphan.keyed, keep=orphan.reservations > 0)
    settlements = tuple(
        Settlement(held.id, held.amount if held.chargeable else None) for held in orphan.open_reservations
    )
    if orphan.entry is None or orphan.entry.kind != "intent":
        await store.finish((), settlements, key=key)
        return
    posted = sum(settlement.posted or 0 for settlement in settlements)
    outcome = record.Outcome(
        schema=record.SCHEMA,
        request_id=orphan.request_id,
        tenant=orphan.tenant,
        time=record.rfc3339(clock.now()),
        reason_code=Governed.INTERNAL_ERROR,
        status=status_of(Governed.INTERNAL_ERROR),
        reasons=(Governed.INTERNAL_ERROR,),
        detail="recovered",
        attempts=_attempts(orphan.open_reservations, settlements),
        cost_micro_usd=orphan.settled + posted,
        recovered=True,
    )
    entry = Entry(orphan.tenant, orphan.application, orphan.request_id, "outcome", record.encode(outcome))
    await store.finish((entry,), settlements, key=key)


def _attempts(held: Sequence[Reservation], settlements: Sequence[Settlement]) -> tuple[record.Attempt, ...]:
    return tuple(
        record.Attempt(
            capability=reservation.capability,
            failure="unknown",
            cost_micro_usd=settlement.posted or 0,
            estimated=settlement.posted is not None,
        )
        for reservation, settlement in zip(held, settlements, strict=True)
    )


def _key(orphan: Orphan, key: str, *, keep: bool) -> KeyOutcome:
    return KeyOutcome(
        tenant=orphan.tenant,
        application=orphan.application,
        key=key,
        request_id=orphan.request_id,
        keep=keep,
        status=_ANSWER_LOST,
        reason=Governed.INTERNAL_ERROR,
    )


class RecoveryLoop:
    """A plane's `Recovery`: tries until every request that was asked for is closed."""

    def __init__(self, store: Store, clock: Clock, running: Running) -> None:
        self._store = store
        self._clock = clock
        self._running = running
        self._asked = False
        self._known: dict[str, Unrecorded] = {}

    def ask(self, unrecorded: Unrecorded | None) -> None:
        """See `gateway.plane.Recovery`."""
        self._asked = True
        if unrecorded is None:
            return
        most = 2 * REMEMBERED_MAX if unrecorded.settlements else REMEMBERED_MAX
        if len(self._known) < most:
            self._known[unrecorded.outcome.request_id] = unrecorded

    async def close_all(self) -> None:
        """See `gateway.plane.Recovery`."""
        await self._close(Running())

    async def _close(self, running: Running) -> None:
        known = dict(self._known)
        await recover(self._store, self._clock, running, known)
        for request_id in known:
            self._known.pop(request_id, None)

    async def keep_trying(self, interval_s: float = 1.0) -> None:
        """Until cancelled, whatever fails."""
        while True:
            await self._clock.sleep(interval_s)
            if not self._asked:
                continue
            self._asked = False
            try:
                await self._close(self._running)
            except StoreUnavailable:
                self._asked = True
            except Exception as error:
                self._asked = True
                log.error("closing what was left failed: %s", place_of(error))
