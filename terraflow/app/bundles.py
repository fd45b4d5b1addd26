"""The active bundle of a running plane: read from the store, verified, and looked for again.

1. A bundle is enforced only after its signature and its references held; one that fails leaves the previous one.
2. A newer activation, by whatever process, is noticed within `INTERVAL_S`.
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
from terraflow.ports.runtime import Clock
from terraflow.ports.store import Store

log = logging.getLogger("terraflow.bundles")

INTERVAL_S = 0.5


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
        self._seen: bytes | None = None
        self._expiry = ExpiryWatch()
        self._told_none = False

    def active(self) -> Bundle | Governed:
        """The bundle in force."""
        return Governed.BUNDLE_INVALID if self._bundle is None else self._bundle

    async def refresh(self) -> None:
        """Enforce what the store says is active, if it verifies."""
        envelope = await self._store.active_bundle()
        if envelope is None or envelope == self._seen:
            return
        self._seen = envelope
        try:
            bundle = verify_bundle(envelope, self._keys, self._clock.now(), active=True)
        except BundleRejected as rejected:
            log.error("the stored bundle is refused: %s", rejected)
            return
        await self._follow(bundle)
        self._bundle = bundle
        log.info("bundle %d is in force, digest %s", bundle.sequence, bundle.digest)

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
        elif self._seen is None and not self._told_none:
            self._told_none = True
            log.warning("no bundle is in force, so every request is refused: put one in force (bundle activate)")
