"""How many requests run and wait at once: in all, and of one tenant.

1. At most `running_max` run. Others wait, at most `waiting_max` in all; one more is shed.
2. A place that becomes free goes to the tenants that wait in turn, one request each, and inside a tenant to the highest
   priority and then the earliest: however many requests one tenant has waiting, another's first is next but one.
3. A tenant never has more than `tenant_max` running and waiting together. While that is below `running_max`, no tenant
   fills the plane alone.
4. A request whose deadline passes while it waits, or whose caller leaves, is out of the queue at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from enum import Enum, auto

import msgspec


class AdmissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of rules 1 and 3."""

    running_max: int
    waiting_max: int
    tenant_max: int


class Admitted(Enum):
    """What became of a request at the door."""

    YES = auto()
    SHED = auto()
    TENANT_FULL = auto()
    TOO_LATE = auto()


_Waiting = tuple[int, int, asyncio.Future[None]]
"""Priority, number of arrival, and what is resolved when its turn has come."""


class Admission:
    """The door of one process."""

    def __init__(self, rule: AdmissionRule) -> None:
        self._rule = rule
        self._running = 0
        self._by_tenant: dict[str, int] = {}
        self._queues: dict[str, list[_Waiting]] = {}
        self._turns: deque[str] = deque()
        self._waiting = 0
        self._arrivals = itertools.count()

    @property
    def running(self) -> int:
        """Requests inside now."""
        return self._running

    @property
    def queued(self) -> int:
        """Entries of the queue now, whoever they are of."""
        return sum(map(len, self._queues.values()))

    async def enter(self, tenant: str, priority: int, timeout_s: float) -> Admitted:
        """Take a place, waiting for one at most `timeout_s`. Whoever gets YES MUST call `leave` once."""
        if self._by_tenant.get(tenant, 0) >= self._rule.tenant_max:
            return Admitted.TENANT_FULL
        if not timeout_s > 0:
            return Admitted.TOO_LATE
        if self._running < self._rule.running_max:
            self._running += 1
            self._count(tenant, 1)
            return Admitted.YES
        if self._waiting >= self._rule.waiting_max:
            return Admitted.SHED
        return await self._wait(tenant, priority, timeout_s)

    async def _wait(self, tenant: str, priority: int, timeout_s: float) -> Admitted:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (priority, next(self._arrivals), turn)
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = []
            self._turns.append(tenant)
        heapq.heappush(queue, waiting)
        self._count(tenant, 1)
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as left:
            self._count(tenant, -1)
            if turn.done() and not turn.cancelled():
                self._pass_on()
            else:
                self._give_up(tenant, waiting)
            if isinstance(left, TimeoutError):
                return Admitted.TOO_LATE
            raise
        return Admitted.YES

    def leave(self, tenant: str) -> None:
        """Give the place to the next in the queue, or free it."""
        self._count(tenant, -1)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._turns:
            tenant = self._turns.popleft()
            queue = self._queues[tenant]
            _, _, turn = heapq.heappop(queue)
            self._waiting -= 1
            if queue:
                self._turns.append(tenant)
            else:
                del self._queues[tenant]
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1

    def _give_up(self, tenant: str, waiting: _Waiting) -> None:
        """Out of the queue, unless a place that was passed on has found it gone already."""
        queue = self._queues.get(tenant, [])
        if waiting not in queue:
            return
        self._waiting -= 1
        queue.remove(waiting)
        heapq.heapify(queue)
        if not queue:
            del self._queues[tenant]
            self._turns.remove(tenant)

    def _count(self, tenant: str, step: int) -> None:
        count = self._by_tenant.get(tenant, 0) + step
        if count:
            self._by_tenant[tenant] = count
        else:
            self._by_tenant.pop(tenant, None)
