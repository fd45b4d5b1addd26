"""The active bundle of a running plane: read from the store, verified, and looked for again.

1. A bundle is enforced only after its signature and its references held; one that fails leaves the previous one, or
   none, and never ends the plane.
2. A newer activation, by whatever process, is noticed within `INTERVAL_S`. Looking costs a number: the envelope is read
   when that has changed.
3. That the bundle in force expires soon, or has, or that there is none, is told in the log.
4. Whoever must follow a change (the providers) is told before the bundle is enforced.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.app.expiry import ExpiryWatch
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.verify import BundleRejected, verify_bundle
from terraflow.core.reasons import Governed
from terraflow.gateway.faults import place_of
from terraflow.ports.runtime import Clock
from terraflow.ports.store import Store

log = logging.getLogger("terraflow.bundles")

INTERVAL_S = 0.5
AGAIN_S = 5.0
"""How long after a failure a bundle is tried again."""


class ActiveBundle:
    """A `BundleSource` over the store."""

    def __init__(
        self,
        store: Store,
        keys: Mapping[str, Ed25519PublicKey],
        clock: Clock,
        follow: Callable[[Bundle], Awaitable[None]],
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._follow = follow
        self._bundle: Bundle | None = None
        self._seen = 0
        self._failed: tuple[int, str] | None = None
        self._again_at = 0.0
        self._expiry = ExpiryWatch()
        self._told_none = False

    def active(self) -> Bundle | Governed:
        """The bundle in force."""
        return Governed.BUNDLE_INVALID if self._bundle is None else self._bundle

    async def refresh(self) -> None:
        """Enforce what the store says is active, if it can be. Raises StoreUnavailable, and nothing else."""
        sequence = await self._store.active_sequence()
        if sequence == self._seen or (self._failed is not None and self._clock.monotonic() < self._again_at):
            return
        envelope = await self._store.active_bundle()
        if envelope is None:
            return
        try:
            bundle = verify_bundle(envelope, self._keys, self._clock.now(), active=True)
            await self._follow(bundle)
        except BundleRejected as rejected:
            self._seen = sequence
            log.error("the stored bundle is refused: %s", rejected)
        except Exception as error:
            self._fail(sequence, error)
        else:
            self._seen, self._bundle, self._failed = bundle.sequence, bundle, None
            log.info("bundle %d is in force, digest %s", bundle.sequence, bundle.digest)

    def _fail(self, sequence: int, error: Exception) -> None:
        """A bundle that is right and cannot be put in force is tried again, and told of once."""
        self._again_at = self._clock.monotonic() + AGAIN_S
        failed = (sequence, place_of(error))
        if failed != self._failed:
            log.error("bundle %d cannot be put in force: %s", sequence, failed[1])
        self._failed = failed

    async def keep_fresh(self) -> None:
        """Look for a newer activation until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            try:
                await self.refresh()
            except Exception as error:
                log.error("looking for a newer bundle failed: %s", type(error).__name__)
            self.tell()

    def tell(self) -> None:
        """Say in the log what an operator should do about the bundle in force, if it is time to."""
        bundle = self._bundle
        if bundle is not None:
            self._expiry.look(bundle.digest, bundle.sequence, bundle.expires_at, self._clock.now())
        elif self._seen == 0 and self._failed is None and not self._told_none:
            self._told_none = True
            log.warning("no bundle is in force, so every request is refused: put one in force (bundle activate)")
