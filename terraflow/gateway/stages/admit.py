"""Step 8: a place among the running requests, within the deadline."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.admission_queue import State, Ticket
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane

_CODES = {State.SHED: Governed.QUEUE_SHED, State.TENANT_FULL: Governed.TENANT_QUEUE_LIMIT}


async def admit(plane: Plane, x: Exchange) -> StepOutcome:
    """TENANT_QUEUE_LIMIT, QUEUE_SHED or DEADLINE_EXPIRED; sheds are recorded without waiting."""
    assert x.resolution is not None
    workload = x.resolution.workload
    with x.presence:
        ticket = await plane.admission.enter(workload.tenant, workload.id, workload.priority, x.deadline)
    if type(ticket) is not Ticket:
        raise TypeError("nobody knows whether there is a place")
    if ticket.state is State.RUNNING:
        x.place = ticket
        return CONTINUE
    if ticket.state is State.TOO_LATE:
        return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="waiting_for_admission")
    x.note_only = True
    return Refuse(reason=_CODES[ticket.state], retry_after_s=ticket.retry_after_s)
