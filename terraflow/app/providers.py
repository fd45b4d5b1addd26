"""The providers of the active bundle, each bound to the definition that policy decided on.

1. A bundle's providers are opened before it comes into force, all of them or none.
2. A request keeps the bundle that it began under: it is called on the very definition that was planned, also when a
   newer bundle has changed or dropped it meanwhile. What no bundle in force names is closed when no request can need
   it any more.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable

import msgspec

from terraflow.app.settings import Settings, read_secret
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Boundary, Capability
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Provider
from terraflow.providers.endpoint import Standing
from terraflow.providers.open import Opened, open_provider
from terraflow.providers.outbound import Outbound

log = logging.getLogger("terraflow.providers")

_NOT_INSIDE = (Standing.OUTSIDE, Standing.FORBIDDEN)


class _Entry(msgspec.Struct, frozen=True):
    capability: Capability
    opened: Opened
    provider: Provider
    ready: bool


class _Retired(msgspec.Struct, frozen=True):
    entry: _Entry
    until: float


class OpenProviders:
    """A `ProviderSet` that follows the active bundle. An unchanged capability keeps its provider and connections."""

    def __init__(self, settings: Settings, clock: Clock, wrap: Callable[[str, Provider], Provider]) -> None:
        networks = [ipaddress.ip_network(network) for network in settings.private_networks]
        self._outbound = Outbound(networks, connections_max=settings.upstream_connections_max)
        self._clock = clock
        self._wrap = wrap
        self._stay_s = settings.deadline_ms_max / 1000
        self._open: dict[str, _Entry] = {}
        self._retired: list[_Retired] = []

    async def follow(self, bundle: Bundle) -> None:
        """Open what the bundle names, and retire what it does not. On an error nothing has changed."""
        opened: dict[str, _Entry] = {}
        try:
            for name, capability in bundle.capabilities.items():
                known = self._open.get(name)
                if known is None or known.capability != capability:
                    opened[name] = await self._opened(capability)
        except BaseException:
            for entry in opened.values():
                await entry.provider.close()
            raise
        now = self._clock.monotonic()
        kept = {name: opened.get(name) or self._open[name] for name in bundle.capabilities}
        leaving = [entry for name, entry in self._open.items() if kept.get(name) is not entry]
        self._open = kept
        self._retired += [_Retired(entry, now + self._stay_s) for entry in leaving]
        for retired in [retired for retired in self._retired if retired.until <= now]:
            self._retired.remove(retired)
            await retired.entry.provider.close()

    async def _opened(self, capability: Capability) -> _Entry:
        secret = None if capability.secret is None else read_secret(capability.secret)
        ready = capability.secret is None or secret is not None
        try:
            opened = await open_provider(capability, secret, self._outbound, self._clock)
        except ValueError as unusable:
            if secret is None:
                raise
            # The endpoint's form was checked when the bundle was accepted: it is the credential's.
            log.error("capability %s is off: %s", capability.id, unusable)
            ready, opened = False, await open_provider(capability, None, self._outbound, self._clock)
        return _Entry(capability, opened, self._wrap(capability.id, opened.provider), ready)

    def provider(self, capability: Capability) -> Provider:
        """See `gateway.plane.ProviderSet`."""
        entry = self._open.get(capability.id)
        if entry is not None and (entry.capability is capability or entry.capability == capability):
            return entry.provider
        for retired in self._retired:
            if retired.entry.capability == capability:
                return retired.entry.provider
        raise KeyError(capability.id)

    def ready(self, capability: str) -> bool:
        """See `gateway.plane.ProviderSet`."""
        return self._open[capability].ready

    def inside_boundary(self, capability: str) -> bool:
        """See `gateway.plane.ProviderSet`."""
        entry = self._open[capability]
        return entry.capability.boundary is Boundary.EXTERNAL or entry.opened.standing not in _NOT_INSIDE

    async def close(self) -> None:
        """Close every connection."""
        for entry in (*self._open.values(), *(retired.entry for retired in self._retired)):
            await entry.provider.close()
        await self._outbound.close()
