"""Requests that a crash, or a store that was gone, left without an outcome are brought to their recorded end.

1. A paid call that may have started is posted at its worst case; what cannot have started is released.
2. The outcome says so: INTERNAL_ERROR, `recovered`, with what was posted.
3. Many are closed at once, so that they share the disk's time; what one of them meets does not keep the others.
4. An idempotency key whose request may have reached a provider stays taken, so that the same key never makes a second
   call; its replay says that the answer is not stored. A key whose request cannot have reached one is free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from terraflow.core.reasons import Governed, status_of
from terraflow.evidence import record
from terraflow.gateway.running import Running
from terraflow.ports.runtime import Clock
from terraflow.ports.store import Entry, KeyOutcome, Orphan, Reservation, Settlement, Store, StoreUnavailable

log = logging.getLogger("terraflow.recover")

_ANSWER_LOST = 200
"""The status a kept key is ended with when its request may have been answered: a replay then finds no content."""


_AT_ONCE = 128
"""Requests closed at a time: a batch of the store."""


async def recover(store: Store, clock: Clock, running: Running) -> int:
    """Close every orphan that is not running now; how many there were. Raises StoreUnavailable."""
    orphans = [orphan for orphan in await store.orphans() if orphan.request_id not in running]
    for start in range(0, len(orphans), _AT_ONCE):
        some = orphans[start : start + _AT_ONCE]
        ended = await asyncio.gather(*(_close(store, clock, orphan) for orphan in some), return_exceptions=True)
        for trouble in ended:
            if trouble is not None:
                raise trouble
    if orphans:
        log.warning("%d requests without an outcome were closed", len(orphans))
    return len(orphans)


async def _close(store: Store, clock: Clock, orphan: Orphan) -> None:
    settlements = tuple(
        Settlement(held.id, held.amount if held.chargeable else None) for held in orphan.open_reservations
    )
    posted = sum(settlement.posted or 0 for settlement in settlements)
    if orphan.entry.kind != "intent":
        await store.settle(settlements)
        return
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
    await store.finish((entry,), settlements, key=_key(orphan, posted > 0 or orphan.settled > 0))


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


def _key(orphan: Orphan, may_have_run: bool) -> KeyOutcome | None:
    if orphan.keyed is None:
        return None
    return KeyOutcome(
        tenant=orphan.tenant,
        application=orphan.application,
        key=orphan.keyed,
        request_id=orphan.request_id,
        keep=may_have_run,
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

    def ask(self) -> None:
        """See `gateway.plane.Recovery`."""
        self._asked = True

    async def keep_trying(self, interval_s: float = 1.0) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(interval_s)
            if not self._asked:
                continue
            self._asked = False
            try:
                await recover(self._store, self._clock, self._running)
            except StoreUnavailable:
                self._asked = True
