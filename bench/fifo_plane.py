"""`terraflow` with a planted fault: one line for everybody, as long as it gets, first in, first out.

The overload bench runs it beside the plane as it is, to show what its figures are worth. It is the product's command
with another door: `python -m bench.fifo_plane demo …`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from terraflow.app import wiring
from terraflow.cli.main import main
from terraflow.gateway.admission_queue import AdmissionRule, State, Ticket
from terraflow.ports.runtime import Clock


class Fifo:
    """In place of `gateway.admission.Admission`."""

    def __init__(self, rule: AdmissionRule, clock: Clock, _limit: Any) -> None:
        self._most = rule.running_max
        self._clock = clock
        self._line: deque[Ticket] = deque()
        self.running = 0

    def full(self, _tenant: str) -> None:
        """There is always room."""

    async def enter(self, tenant: str, workload: str, priority: int, deadline: float) -> Ticket:
        """A place, when all who came before have had theirs."""
        ticket = Ticket(tenant, workload, 0.0, 0, deadline, 0.0)
        if self.running < self._most:
            self.running += 1
        else:
            ticket.wake = asyncio.get_running_loop().create_future()
            self._line.append(ticket)
            try:
                await ticket.wake
            except asyncio.CancelledError:
                if ticket.wake.done() and not ticket.wake.cancelled():
                    self.leave(ticket, 0.0)
                raise
        ticket.state = State.RUNNING
        return ticket

    def leave(self, _ticket: Ticket, _elsewhere_s: float) -> None:
        """The place goes to the first in the line."""
        while self._line:
            first = self._line.popleft()
            if not first.wake.done():
                first.wake.set_result(None)
                return
        self.running -= 1


if __name__ == "__main__":
    wiring.Admission = Fifo  # type: ignore[assignment,misc]
    main()
