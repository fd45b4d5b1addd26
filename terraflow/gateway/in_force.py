"""The bundle in force: without one, or past its end, nothing is decided by it, governed or not."""

from __future__ import annotations

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import Instant
from terraflow.gateway.plane import Plane


def unusable(bundle: Bundle | Governed, now: Instant) -> Refuse | None:
    """BUNDLE_INVALID without a verified active bundle, BUNDLE_EXPIRED past its expiry."""
    if type(bundle) is not Bundle:
        return Refuse(reason=Governed.BUNDLE_INVALID)
    return None if now < bundle.expires_at else Refuse(reason=Governed.BUNDLE_EXPIRED)


def bundle_in_force(plane: Plane) -> Bundle | Refuse:
    """The bundle, or why there is none."""
    bundle = plane.bundles.active()
    refuse = unusable(bundle, plane.clock.now())
    if refuse is not None:
        return refuse
    assert type(bundle) is Bundle
    return bundle
