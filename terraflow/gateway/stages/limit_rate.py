"""Step 7: requests a minute of the workload."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


async def limit_rate(plane: Plane, x: Exchange) -> StepOutcome:
    """RATE_LIMITED with the seconds until a request would pass."""
    assert x.resolution is not None
    workload = x.resolution.workload
    limit = workload.contract.requests_per_minute
    if limit is None:
        return CONTINUE
    wait_s = plane.rate.take(workload.tenant, workload.id, limit, plane.clock.monotonic())
    if wait_s is None:
        return CONTINUE
    x.note_only = True
    return Refuse(reason=Governed.RATE_LIMITED, detail="workload", retry_after_s=wait_s)
