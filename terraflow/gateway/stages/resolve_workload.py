"""Step 5: which workload, and which capability is pinned."""

from __future__ import annotations

from terraflow.contracts.resolve import Resolution, pinned_by, resolve
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


async def resolve_workload(plane: Plane, x: Exchange) -> StepOutcome:
    """UNKNOWN_WORKLOAD, TENANT_MISMATCH, APP_NOT_ENTITLED_TO_WORKLOAD or CONTRACT_NOT_EXECUTABLE; for a pin by
    a name that nothing has, CAPABILITY_NOT_IN_CONTRACT.

    A deadline that the caller did not give is the contract's from here on, and never later than the plane's own.
    """
    assert x.bundle is not None
    found = resolve(
        x.bundle, x.caller.tenant, x.caller.application, x.declared.workload, x.request.model, plane.clock.now()
    )
    if isinstance(found, Refuse):
        return found
    pin = x.declared.capability
    if pin is not None:
        # Who pins by name means that one, and takes no other for it.
        pinned = pinned_by(x.bundle, found.workload, pin)
        if pinned is None:
            return Refuse(reason=Governed.CAPABILITY_NOT_IN_CONTRACT, detail="pinned")
        found = Resolution(found.workload, pinned)
    x.resolution = found
    if x.declared.deadline_ms is None:
        x.deadline = min(x.deadline, x.started + found.workload.contract.deadline_ms / 1000)
    return CONTINUE
