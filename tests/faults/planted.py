"""Faults planted into a whole plane, each of which a judge in `trust/` must catch.

Each stands between a port and its real implementation; the plane around it is the product.

    python -m tests.faults.planted NAME      (settings from TERRAFLOW_*)
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from terraflow.app.server import serve
from terraflow.app.settings import environment, load_settings
from terraflow.app.wiring import Wrap
from terraflow.core.types import Instant
from terraflow.ports.store import (
    Claim,
    Claimed,
    Entry,
    KeyClaim,
    KeyOutcome,
    NoRoom,
    Orphan,
    Reservation,
    Reserved,
    Settlement,
    Store,
    StoreUnavailable,
)
from tests.storage.makers import budgets


class _Over:
    """A store that passes every verb on."""

    def __init__(self, real: Store) -> None:
        self._real: Any = real
        self._late: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _later(self, verb: Any) -> None:
        task = asyncio.ensure_future(verb)
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def _recovered(entries: Sequence[Entry]) -> bool:
    return any(json.loads(entry.data).get("recovered") for entry in entries)


class OutcomeUnwaited(_Over):
    """Says that an outcome is durable before it is (but that of a recovery)."""

    async def finish(self, entries: Sequence[Entry], *given: Any, **named: Any) -> None:
        ending = self._real.finish(entries, *given, **named)
        if _recovered(entries):
            await ending
        else:
            self._later(ending)


class IntentUnwaited(_Over):
    """Lets a request run before its intent is durable."""

    async def begin(self, entries: Sequence[Entry], reservation: Reservation | None) -> Reserved | NoRoom:
        self._later(self._real.begin(entries, reservation))
        return Reserved()

    async def finish(self, *given: Any, **named: Any) -> None:
        if self._late:
            await asyncio.wait(self._late)
        await self._real.finish(*given, **named)


class ReleasedByRecovery(_Over):
    """Gives back, after a crash, what a call may have used."""

    async def orphans(self) -> Sequence[Orphan]:
        return [
            msgspec.structs.replace(
                orphan,
                open_reservations=tuple(
                    msgspec.structs.replace(held, chargeable=False) for held in orphan.open_reservations
                ),
            )
            for orphan in await self._real.orphans()
        ]


class KeyFreedByRecovery(_Over):
    """Lets a key run again, after a crash, although its request may have reached a model."""

    async def finish(
        self, entries: Sequence[Entry], settlements: Sequence[Settlement] = (), answer: Any = None, key: Any = None
    ) -> None:
        if isinstance(key, KeyOutcome) and _recovered(entries):
            key = msgspec.structs.replace(key, keep=False)
        await self._real.finish(entries, settlements, answer=answer, key=key)


class EntriesUnseen(_Over):
    """Finds no record of any request, so that what a crash cut off looks as if it had never run."""

    async def find_entries(self, *_: Any) -> Sequence[Entry]:
        return ()


class LimitsRead(_Over):
    """Reads the counters, decides, and then reserves: two steps where one is due."""

    async def begin(self, entries: Sequence[Entry], reservation: Reservation | None) -> Reserved | NoRoom:
        if reservation is None:
            found: Reserved | NoRoom = await self._real.begin(entries, None)
            return found
        uses = {
            (use.level, use.of, use.window, use.window_key): use.reserved + use.posted
            for use in budgets(self._real, reservation.tenant)
        }
        for line in reservation.lines:
            used = uses.get((line.level, line.of, line.window, line.window_key), 0)
            if line.limit is not None and used + reservation.amount > line.limit:
                return NoRoom(line.level, line.window)
        unlimited = tuple(msgspec.structs.replace(line, limit=None) for line in reservation.lines)
        found = await self._real.begin(entries, msgspec.structs.replace(reservation, lines=unlimited))
        return found


class WritesRefused(_Over):
    """A store that cannot write."""

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the fault of a test")

    claim = begin = reserve = settle = finish = _refuse

    def note(self, entries: Sequence[Entry]) -> None:
        raise StoreUnavailable("the fault of a test")


class EveryClaimTaken(_Over):
    """Gives an idempotency key to everybody who asks."""

    async def claim(self, claim: KeyClaim, now: Instant) -> Claim:
        await self._real.claim(claim, now)
        return Claimed()


PLANTED: dict[str, Callable[[Store], Any]] = {
    "outcome_unwaited": OutcomeUnwaited,
    "intent_unwaited": IntentUnwaited,
    "released_by_recovery": ReleasedByRecovery,
    "key_freed_by_recovery": KeyFreedByRecovery,
    "entries_unseen": EntriesUnseen,
    "limits_read": LimitsRead,
    "writes_refused": WritesRefused,
    "every_claim_taken": EveryClaimTaken,
}


def serve_with(name: str) -> None:
    """Serve with a fault, until a signal says to stop; prints what `terraflow serve` prints."""

    def listening(url: str) -> None:
        print(json.dumps({"base_url": f"{url}/v1"}), flush=True)

    serve(load_settings(None, environment()), listening, wrap=Wrap(store=PLANTED[name]))


if __name__ == "__main__":
    serve_with(sys.argv[1])
