"""Step 4: no valid bundle, no request."""

from __future__ import annotations

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


async def check_bundle(plane: Plane, x: Exchange) -> StepOutcome:
    """BUNDLE_INVALID without a verified active bundle, BUNDLE_EXPIRED past its expiry."""
    bundle = plane.bundles.active()
    if type(bundle) is not Bundle:
        return Refuse(reason=Governed.BUNDLE_INVALID)
    x.bundle = bundle
    if not plane.clock.now() < bundle.expires_at:
        return Refuse(reason=Governed.BUNDLE_EXPIRED)
    return CONTINUE
