"""How many requests run and wait at once: in all, and of one tenant.

1. At most `running_max` run. Others wait, the highest priority first and then the earliest, at most `waiting_max`
   in all; one more is shed.
2. A tenant never has more than `tenant_max` running and waiting together, so that no tenant fills the plane alone.
3. A request whose deadline passes while it waits leaves the queue.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from enum import Enum, auto

import msgspec


class AdmissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of rules 1 and 2."""

    running_max: int
    waiting_max: int
    tenant_max: int


class Admitted(Enum):
    """What became of a request at the door."""

    YES = auto()
    SHED = auto()
    TENANT_FULL = auto()
    TOO_LATE = auto()


class Admission:
    """The door of one process."""

    def __init__(self, rule: AdmissionRule) -> None:
        self._rule = rule
        self._running = 0
        self._by_tenant: dict[str, int] = {}
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiting = 0
        self._arrivals = itertools.count()

    @property
    def running(self) -> int:
        """Requests inside now."""
        return self._running

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
        heapq.heappush(self._queue, (priority, next(self._arrivals), turn))
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
                self._waiting -= 1
            if isinstance(left, TimeoutError):
                return Admitted.TOO_LATE
            raise
        return Admitted.YES

    def leave(self, tenant: str) -> None:
        """Give the place to the next in the queue, or free it."""
        self._count(tenant, -1)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._queue:
            _, _, turn = heapq.heappop(self._queue)
            if not turn.done():
                self._waiting -= 1
                turn.set_result(None)
                return
        self._running -= 1

    def _count(self, tenant: str, step: int) -> None:
        count = self._by_tenant.get(tenant, 0) + step
        if count:
            self._by_tenant[tenant] = count
        else:
            self._by_tenant.pop(tenant, None)
