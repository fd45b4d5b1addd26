"""What runs the items of batches, beside the requests.

1. So many items run at once, of all batches together. A free place goes to the tenant with the fewest running items,
   among equals to the one that was served longest ago, and to its batch that was.
2. An item is taken durably before it runs, and has its result durably before another takes its place. After a crash, or
   when the store was gone, what was taken is decided by the record (`item`, rule 2).
3. A batch whose item may only run later rests: a second, then twice as long, at most `REST_MAX_S`; so does one whose
   store was gone. Items are taken round and round: one that may only run later lets those behind it go first.
4. A batch that was cancelled, or whose time is over, takes nothing more. When its running items have ended the others
   fail with a line that says so, and it has ended.
5. `stop_taking` is the plane's stopping: what runs is brought to its end, and the next start goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Coroutine

import msgspec

from terraflow.core.reasons import Governed
from terraflow.core.types import MICRO, Instant
from terraflow.evidence import record
from terraflow.gateway.batches import item as items
from terraflow.gateway.batches import lines
from terraflow.gateway.faults import place_of
from terraflow.gateway.plane import Plane
from terraflow.ports.batches import Batch, BatchItem, BatchStatus, BatchStore
from terraflow.ports.store import StoreConflict, StoreUnavailable

log = logging.getLogger("terraflow.batches")

LOOK_EVERY_S = 1.0
"""How often rests and expiries are looked at while there are batches."""
REST_MAX_S = 60.0
SOME = 64
"""Items that end unrun in one transaction."""

_UNRUN = {
    BatchStatus.CANCELLED: ("batch_cancelled", "The batch was cancelled before this request ran."),
    BatchStatus.EXPIRED: ("batch_expired", "The batch's completion window ended before this request ran."),
}


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of what runs, and how long an ended batch is kept."""

    running_max: int
    keep_s: int
    values_max: int
    deadline_ms_max: int


class Open:
    """A batch that has not ended, as this process runs it."""

    __slots__ = ("batch", "drained", "ending", "live", "pause_s", "rest_until", "served", "taken", "troubled")

    def __init__(self, batch: Batch, *, troubled: bool) -> None:
        self.batch = batch
        self.live: set[str] = set()
        self.drained = False
        self.ending = False
        self.troubled = troubled
        self.rest_until = 0.0
        self.pause_s = 0.0
        self.served = 0
        self.taken = -1

    def rest(self, now: float, asked_s: float = 0.0) -> None:
        """Take nothing for a while. What comes back while it rests does not make it longer."""
        if now >= self.rest_until:
            self.pause_s = min(REST_MAX_S, max(asked_s, 2 * self.pause_s, 1.0))
            self.rest_until = now + self.pause_s


class Runner:
    """Runs batches until it is stopped."""

    def __init__(self, plane: Plane, store: BatchStore, limits: RunLimits) -> None:
        self._plane = plane
        self._store = store
        self._limits = limits
        self._open: dict[str, Open] = {}
        self._served: dict[str, int] = {}
        self._serial = 0
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
        self._open[batch.id] = Open(batch, troubled=troubled)
        self._wake.set()

    def changed(self, batch: Batch) -> None:
        """Its status was changed."""
        if batch.id in self._open:
            self._open[batch.id].batch = batch
            self._wake.set()

    def stop_taking(self) -> None:
        """Nothing more is taken from now on."""
        self._stopping = True

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
                self._start_what_may()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S if self._open else None):
                        await self._wake.wait()
        finally:
            await self._cut_off()

    def _start_what_may(self) -> None:
        if self._stopping:
            return
        now, wall = self._plane.clock.monotonic(), self._plane.clock.now()
        runnable = []
        for running in self._open.values():
            if running.ending:
                continue
            rested = now >= running.rest_until
            takes = running.batch.status is BatchStatus.IN_PROGRESS and wall < running.batch.expires_at
            if running.troubled:
                if rested:
                    running.ending = True
                    self._spawn(self._settle(running))
            elif takes and not running.drained:
                if rested:
                    runnable.append(running)
            elif not running.live:
                running.ending = True
                self._spawn(self._finish(running))
        if runnable:
            self._fill(runnable)

    def _fill(self, runnable: list[Open]) -> None:
        busy: Counter[str] = Counter()
        for running in self._open.values():
            busy[running.batch.tenant] += len(running.live)

        def standing(running: Open) -> tuple[int, int, int]:
            tenant = running.batch.tenant
            return busy[tenant], self._served.get(tenant, 0), running.served

        for _ in range(self._limits.running_max - busy.total()):
            chosen = min(runnable, key=standing)
            busy[chosen.batch.tenant] += 1
            self._start(chosen)

    def _start(self, running: Open) -> None:
        self._serial += 1
        running.served = self._served[running.batch.tenant] = self._serial
        request_id = self._plane.ids.request_id()
        running.live.add(request_id)
        self._spawn(self._one(running, request_id))

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
            running.live.discard(request_id)
            self._wake.set()

    async def _run(self, running: Open, request_id: str) -> None:
        batch, limits = running.batch, self._limits
        taken = await self._store.take_item(batch, running.taken, request_id)
        if taken is None:
            running.drained = True
            return
        running.taken = taken.no
        if taken.data is None:
            await self._end_item(batch, taken, items.Result(False, b""))
            return
        found = await items.run(self._plane, batch, taken, limits.values_max, limits.deadline_ms_max)
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
            left = False
            for item in await self._store.running_items(running.batch):
                if item.request_id not in running.live:
                    left = not await self._decide(running.batch, item) or left
            running.drained = False
            if left:
                running.troubled = True
                running.rest(self._plane.clock.monotonic())
        except Exception as fault:
            self._failed(running, fault)
        finally:
            running.ending = False
            self._wake.set()

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
            return await items.from_record(self._plane, batch, item, self._limits.values_max, outcome, kept)
        except Exception as fault:
            # It has ended all the same: a line that cannot be made keeps no batch open.
            log.error("the result of an item cannot be told: %s", place_of(fault))
            return items.Result(False, b"")

    async def _finish(self, running: Open) -> None:
        """Nothing of it runs any more: end what never ran, and the batch."""
        try:
            status = await self._ends_as(running)
            if status is not None:
                await self._end(running.batch, status)
                del self._open[running.batch.id]
        except Exception as fault:
            self._failed(running, fault)
        finally:
            running.ending = False
            self._wake.set()

    async def _ends_as(self, running: Open) -> BatchStatus | None:
        batch, now = running.batch, self._plane.clock.now()
        if batch.status is BatchStatus.VALIDATING:
            return BatchStatus.FAILED
        unrun = bool(await self._store.queued_items(batch, 1))
        if batch.status is BatchStatus.CANCELLING:
            status = BatchStatus.CANCELLED
        elif now >= batch.expires_at and (unrun or _began_late(batch)):
            status = BatchStatus.EXPIRED
        elif unrun:
            running.drained = False
            return None
        else:
            status = BatchStatus.COMPLETED
        if batch.status is BatchStatus.IN_PROGRESS:
            await self._store.finalize_batch(batch, now)
            running.batch = msgspec.structs.replace(batch, status=BatchStatus.FINALIZING, finalizing_at=now)
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
    """Whether its end was begun for its time being over, by a process that did not come to it."""
    return batch.finalizing_at is not None and batch.finalizing_at >= batch.expires_at
