"""Step 4: no valid bundle, no request."""

from __future__ import annotations

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import CONTINUE, StepOutcome
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.in_force import unusable
from terraflow.gateway.plane import Plane


async def check_bundle(plane: Plane, x: Exchange) -> StepOutcome:
    """BUNDLE_INVALID without a verified active bundle, BUNDLE_EXPIRED past its expiry."""
    bundle = plane.bundles.active()
    x.bundle = bundle if type(bundle) is Bundle else None
    return unusable(bundle, plane.clock.now()) or CONTINUE
