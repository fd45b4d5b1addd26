"""Step 8: a place among the running requests, within the deadline."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.admission import Admitted
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane

RETRY_AFTER_S = 1
"""A running request frees a place within about a second; the admission of the overload work will measure it."""


async def admit(plane: Plane, x: Exchange) -> StepOutcome:
    """TENANT_QUEUE_LIMIT, QUEUE_SHED or DEADLINE_EXPIRED; sheds are recorded without waiting."""
    assert x.resolution is not None
    workload = x.resolution.workload
    left = x.deadline - plane.clock.monotonic()
    with x.presence:
        found = await plane.admission.enter(workload.tenant, workload.priority, left)
    if found is Admitted.YES:
        x.admitted = True
        return CONTINUE
    if found is Admitted.TOO_LATE:
        return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="waiting_for_admission")
    x.note_only = True
    reason = Governed.QUEUE_SHED if found is Admitted.SHED else Governed.TENANT_QUEUE_LIMIT
    return Refuse(reason=reason, retry_after_s=RETRY_AFTER_S)
