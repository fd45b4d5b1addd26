"""What runs the items of batches, beside the requests.

1. What a batch needs next, and whose item runs next, is said by `open_batches`; here it is done.
2. An item is taken durably before it runs, and has its result durably before another takes its place. After a crash, or
   when the store was gone, what was taken is decided by the record (`item`, rule 2).
3. A batch whose item may only run later rests; so does one whose store was gone. Items are taken round and round: one
   that may only run later lets those behind it go first.
4. A batch that was cancelled, or whose time is over, takes nothing more, and its items that wait, for a place or a
   slot, are taken back. When those for which a provider was asked have ended, the others fail with a line that says so,
   and it has ended.
5. `stop_taking` is the plane's stopping: the same for every batch, but that the next start goes on with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import MICRO, Instant
from terraflow.evidence import record
from terraflow.gateway.batches import item as items
from terraflow.gateway.batches import lines
from terraflow.gateway.batches.open_batches import Due, Open, OpenBatches
from terraflow.gateway.faults import place_of
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import Presence
from terraflow.ports.batches import Batch, BatchItem, BatchStatus, BatchStore
from terraflow.ports.store import StoreConflict, StoreUnavailable

log = logging.getLogger("terraflow.batches")

LOOK_EVERY_S = 1.0
"""How often all batches are looked at, for rests and windows that have ended."""
SOME = 64
"""Items that end unrun in one transaction."""

_UNRUN = {
    BatchStatus.CANCELLED: ("batch_cancelled", "The batch was cancelled before this request ran."),
    BatchStatus.EXPIRED: ("batch_expired", "The batch's completion window ended before this request ran."),
}


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of batches. The defaults and their reasons stand in `app.settings`."""

    items_max: int
    bytes_max: int
    open_max: int
    stored_bytes_max: int
    running_max: int
    keep_s: int


class Runner:
    """Runs batches until it is stopped."""

    def __init__(self, plane: Plane, store: BatchStore, limits: BatchLimits) -> None:
        self._plane = plane
        self._store = store
        self._limits = limits
        self._open = OpenBatches(limits.running_max)
        self._changed: set[Open] = set()
        self._all_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False

    # What the desk and the server say.

    async def resume(self) -> None:
        """Take up what an earlier process left, before anything else is asked of it. Raises StoreUnavailable."""
        for batch in await self._store.open_batches():
            self.add(batch, troubled=True)

    def add(self, batch: Batch, *, troubled: bool = False) -> None:
        """A batch was made; `troubled` when it is not known how far it got."""
        self._look_at(self._open.add(batch, troubled=troubled))

    def changed(self, batch: Batch) -> None:
        """Its status was changed."""
        running = self._open.find(batch.id)
        if running is not None:
            running.batch = batch
            self._look_at(running)

    def stop_taking(self) -> None:
        """Nothing more is taken from now on, and what waits is taken back."""
        self._stopping = True
        for running in self._open.all():
            running.give_way()

    async def drained(self, timeout_s: float) -> None:
        """Return when no item runs any more, or the time is over; what still runs then is cut off, and left to the
        next start."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await self._cut_off()

    async def _cut_off(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The loop.

    async def keep_running(self) -> None:
        """Until cancelled, whatever fails."""
        try:
            while True:
                self._wake.clear()
                left_s = self._start_what_may()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._wake.wait()
        finally:
            await self._cut_off()

    def _look_at(self, running: Open) -> None:
        self._changed.add(running)
        self._wake.set()

    def _start_what_may(self) -> float | None:
        """Start what is to be done; how long until all batches are looked at again, None without any."""
        now, wall = self._plane.clock.monotonic(), self._plane.clock.now()
        some, self._changed = list(self._changed), set()
        if now >= self._all_at:
            some, self._all_at = self._open.all(), now + LOOK_EVERY_S
        for running in some:
            if not running.takes_more(wall):
                running.give_way()
        if not self._stopping:
            for running, due in self._open.look(some, now, wall):
                self._spawn(self._settle(running) if due is Due.SETTLE else self._finish(running))
            while (chosen := self._open.next(now, wall)) is not None:
                request_id = self._plane.ids.request_id()
                chosen.live[request_id] = Presence((chosen.batch.tenant, chosen.batch.application))
                self._spawn(self._one(chosen, request_id))
        return self._all_at - now if len(self._open) else None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # One item.

    async def _one(self, running: Open, request_id: str) -> None:
        try:
            await self._run(running, request_id)
        except Exception as fault:
            if not isinstance(fault, StoreUnavailable):
                log.error("an item of a batch failed: %s", place_of(fault))
            running.troubled = True
            running.rest(self._plane.clock.monotonic())
        finally:
            del running.live[request_id]
            self._open.freed(running)
            self._look_at(running)

    async def _run(self, running: Open, request_id: str) -> None:
        batch = running.batch
        taken = await self._store.take_item(batch, running.taken, request_id)
        if taken is None:
            running.drained = True
            return
        running.taken = taken.no
        if taken.data is None:
            await self._end_item(batch, taken, items.Result(False, b""))
            return
        found = await items.run(self._plane, batch, taken, running.live[request_id])
        if isinstance(found, items.Later):
            await self._store.return_item(batch, taken.no, request_id)
            running.drained = False
            running.rest(self._plane.clock.monotonic(), found.retry_after_s or 0)
            return
        await self._end_item(batch, taken, found)
        running.pause_s = 0.0

    async def _end_item(self, batch: Batch, item: BatchItem, result: items.Result) -> None:
        assert item.request_id is not None
        await self._store.end_item(
            batch,
            item.no,
            item.request_id,
            completed=result.completed,
            line=result.line,
            key=items.digest_of_key(batch, item.no),
            now=self._plane.clock.now(),
        )

    # What was left, and the end.

    async def _settle(self, running: Open) -> None:
        """Decide the items that were taken and are not running; those whose request has not ended yet are left."""
        # An item that fails from here on may not be among those that are looked at: it troubles the batch again.
        running.troubled = False
        try:
            # What runs at this moment is ended by whoever runs it, also when that comes before its turn here.
            live = set(running.live)
            left = False
            for item in await self._store.running_items(running.batch):
                if item.request_id not in live:
                    left = not await self._decide(running.batch, item) or left
            running.drained = False
            if left:
                running.troubled = True
                running.rest(self._plane.clock.monotonic())
        except Exception as fault:
            self._failed(running, fault)
        finally:
            running.engaged = False
            self._look_at(running)

    async def _decide(self, batch: Batch, item: BatchItem) -> bool:
        request_id = item.request_id
        assert request_id is not None
        entries = await self._plane.store.find_entries(batch.tenant, batch.application, request_id)
        if not entries:
            await self._store.return_item(batch, item.no, request_id)
            return True
        outcome = next((found for e in entries if type(found := record.decode(e.data)) is record.Outcome), None)
        if outcome is None:
            return False
        called = bool(outcome.attempts) or outcome.cost_micro_usd > 0
        if items.may_run_later(Governed(outcome.reason_code), outcome.detail or "", called=called):
            await self._store.return_item(batch, item.no, request_id)
        else:
            await self._end_item(batch, item, await self._recorded(batch, item, request_id, outcome))
        return True

    async def _recorded(self, batch: Batch, item: BatchItem, request_id: str, outcome: record.Outcome) -> items.Result:
        if item.data is None:
            return items.Result(False, b"")
        kept = await self._store.answer_of(batch.tenant, request_id, self._plane.clock.now())
        try:
            return await items.from_record(self._plane, batch, item, outcome, kept)
        except Exception as fault:
            # It has ended all the same: a line that cannot be made keeps no batch open.
            log.error("the result of an item cannot be told: %s", place_of(fault))
            return items.refused(batch, item, Refuse(reason=Governed.INTERNAL_ERROR))

    async def _finish(self, running: Open) -> None:
        """Nothing of it runs any more: end what never ran, and the batch."""
        try:
            status = await self._ends_as(running)
            if status is not None:
                if status is BatchStatus.FAILED:
                    await self._drop_items(running.batch)
                await self._end(running.batch, status)
                self._open.remove(running)
        except Exception as fault:
            self._failed(running, fault)
        finally:
            running.engaged = False
            self._look_at(running)

    async def _drop_items(self, batch: Batch) -> None:
        """Nobody will ever read them, and until they are gone they take room. The next start sees to what is left of
        them, since the batch has not ended by then."""
        await self._store.fail_batch(batch)
        while await self._store.drop_items(batch):
            pass

    async def _ends_as(self, running: Open) -> BatchStatus | None:
        batch, now = running.batch, self._plane.clock.now()
        if batch.status in (BatchStatus.VALIDATING, BatchStatus.FAILED):
            return BatchStatus.FAILED
        unrun = bool(await self._store.queued_items(batch, 1))
        if batch.status is BatchStatus.CANCELLING:
            status = BatchStatus.CANCELLED
        elif _began_late(batch) or (unrun and now >= batch.expires_at):
            status = BatchStatus.EXPIRED
        elif unrun:
            running.drained = False
            return None
        else:
            status = BatchStatus.COMPLETED
        if batch.status is BatchStatus.IN_PROGRESS:
            await self._store.finalize_batch(batch, now)
            found = await self._store.find_batch(batch.tenant, batch.application, batch.id, now)
            assert found is not None
            running.batch = found
            if found.status is BatchStatus.CANCELLING:
                # The cancellation came first, and its caller was told so.
                status = BatchStatus.CANCELLED
        if status is not BatchStatus.COMPLETED:
            await self._end_unrun(batch, *_UNRUN[status])
        return status

    async def _end_unrun(self, batch: Batch, code: str, message: str) -> None:
        while unrun := await self._store.queued_items(batch, SOME):
            ended = []
            for item in unrun:
                line = b""
                if item.data is not None:
                    line = lines.never_ran(batch.id, item.no, lines.given(item.data).custom_id, code, message)
                ended.append((item.no, line))
            await self._store.end_queued(batch, ended, self._plane.clock.now())

    async def _end(self, batch: Batch, status: BatchStatus) -> None:
        now = self._plane.clock.now()
        # It may have ended by a verb that was not known to be durable.
        with contextlib.suppress(StoreConflict):
            await self._store.end_batch(batch, status, now, Instant(now + self._limits.keep_s * MICRO))

    def _failed(self, running: Open, fault: Exception) -> None:
        if not isinstance(fault, StoreUnavailable):
            log.error("a batch failed: %s", place_of(fault))
        running.troubled = True
        running.rest(self._plane.clock.monotonic())


def _began_late(batch: Batch) -> bool:
    """Whether its end was begun for its time being over; it is come to, whatever the clock says since."""
    return batch.finalizing_at is not None and batch.finalizing_at >= batch.expires_at
