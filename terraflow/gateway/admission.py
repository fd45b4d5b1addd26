"""The door of one process: requests wait at it, and `admission_queue` decides.

1. Nothing here decides anything; it tells the queue the time, and wakes whom the queue has moved.
2. One timer for all who wait, at the earliest of their deadlines.
3. Whoever stops waiting, for whatever reason, is out of the queue at once, and a place that was given to it goes on to
   the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from terraflow.gateway.adaptive_limit import PlaneLimit
from terraflow.gateway.admission_queue import AdmissionQueue, AdmissionRule, State, Ticket
from terraflow.ports.runtime import Clock

SWEEP_MIN_S = 0.005
"""Sweeps are at least this far apart: one looks at everybody who waits, some 20 µs for 500."""


class Admission:
    """Places for requests, taken with `enter` and given back with `leave`."""

    def __init__(self, rule: AdmissionRule, clock: Clock, limit: PlaneLimit) -> None:
        self._queue = AdmissionQueue(rule)
        self._limit = limit
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0

    @property
    def running(self) -> int:
        """Requests inside now."""
        return self._queue.running

    @property
    def queued(self) -> int:
        """Requests that wait now, whoever they are of."""
        return self._queue.waiting

    @property
    def limit(self) -> int:
        """How many may run now."""
        return self._queue.limit

    @property
    def ceiling(self) -> int:
        """How many may run at the most."""
        return self._queue.ceiling

    def full(self, tenant: str) -> int | None:
        """When the tenant may come again, in seconds, if it, or the queue and most of it with this tenant, is full."""
        return self._queue.full(tenant)

    async def enter(self, tenant: str, workload: str, priority: int, deadline: float) -> Ticket:
        """Take a place, waiting for one until `deadline`, an instant of the clock's monotonic seconds. The ticket's
        state is RUNNING, and whoever gets that MUST call `leave` once; or SHED, TENANT_FULL or TOO_LATE."""
        now = self._clock.monotonic()
        ticket, moved = self._queue.arrive(tenant, workload, priority, deadline, now)
        if moved:
            self._wake(moved)
        if ticket.state is not State.WAITING:
            return ticket
        wake = ticket.wake = asyncio.get_running_loop().create_future()
        self._sweep_by(deadline, now)
        try:
            await wake
        except BaseException:
            self._wake(self._queue.withdraw(ticket, self._clock.monotonic()))
            raise
        return ticket

    def leave(self, ticket: Ticket, elsewhere_s: float) -> None:
        """Give the place back; whoever's turn it is gets it. `elsewhere_s` is how long a provider, and not the plane,
        had the request."""
        now = self._clock.monotonic()
        if ticket.state is State.RUNNING:
            own_s = max(0.0, now - ticket.since - elsewhere_s)
            if self._limit.left(own_s, self._queue.running, now):
                self._wake(self._queue.set_limit(self._limit.limit, now))
        self._wake(self._queue.leave(ticket, now))

    @staticmethod
    def _wake(moved: Sequence[Ticket]) -> None:
        for ticket in moved:
            if not ticket.wake.done():
                ticket.wake.set_result(None)

    def _sweep_by(self, deadline: float, now: float) -> None:
        if self._timer is not None:
            if self._sweep_at <= deadline:
                return
            self._timer.cancel()
        self._sweep_at = max(deadline, now + SWEEP_MIN_S)
        self._timer = asyncio.get_running_loop().call_later(self._sweep_at - now, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        self._wake(self._queue.sweep(now))
        earliest = self._queue.next_deadline()
        if earliest is not None:
            self._sweep_by(earliest, now)
