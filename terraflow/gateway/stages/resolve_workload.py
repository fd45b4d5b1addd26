"""Step 5: which workload, and which capability is pinned."""

from __future__ import annotations

from terraflow.contracts.resolve import resolve
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


async def resolve_workload(plane: Plane, x: Exchange) -> StepOutcome:
    """UNKNOWN_WORKLOAD, TENANT_MISMATCH, APP_NOT_ENTITLED_TO_WORKLOAD or CONTRACT_NOT_EXECUTABLE.

    A deadline that the caller did not give is the contract's from here on, and never later than the plane's own.
    """
    assert x.bundle is not None
    found = resolve(
        x.bundle, x.caller.tenant, x.caller.application, x.declared.workload, x.request.model, plane.clock.now()
    )
    if isinstance(found, Refuse):
        return found
    x.resolution = found
    if x.declared.deadline_ms is None:
        x.deadline = min(x.deadline, x.started + found.workload.contract.deadline_ms / 1000)
    return CONTINUE
