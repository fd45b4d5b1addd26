"""The providers of the active bundle: opened before a bundle comes into force, closed some time after one that does
not name them has: a request keeps the bundle that it began under, and so its providers, until its deadline."""

from __future__ import annotations

import ipaddress
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

_NOT_INSIDE = (Standing.OUTSIDE, Standing.FORBIDDEN)


class _Entry(msgspec.Struct, frozen=True):
    capability: Capability
    opened: Opened
    provider: Provider
    ready: bool


class OpenProviders:
    """A `ProviderSet` that follows the active bundle. An unchanged capability keeps its provider and connections."""

    def __init__(self, settings: Settings, clock: Clock, wrap: Callable[[str, Provider], Provider]) -> None:
        networks = [ipaddress.ip_network(network) for network in settings.private_networks]
        self._outbound = Outbound(networks, connections_max=settings.upstream_connections_max)
        self._clock = clock
        self._wrap = wrap
        self._stay_s = settings.deadline_ms_max / 1000
        self._open: dict[str, _Entry] = {}
        self._leaving: dict[str, float] = {}

    async def follow(self, bundle: Bundle) -> None:
        """Open what the bundle names; close what none has named for as long as a request may take."""
        wanted = bundle.capabilities
        now = self._clock.monotonic()
        for name, capability in wanted.items():
            known = self._open.get(name)
            if known is not None and known.capability == capability:
                continue
            secret = None if capability.secret is None else read_secret(capability.secret)
            opened = await open_provider(capability, secret, self._outbound, self._clock)
            ready = capability.secret is None or secret is not None
            self._open[name] = _Entry(capability, opened, self._wrap(name, opened.provider), ready)
            if known is not None:
                await known.provider.close()
        self._leaving = {name: self._leaving.get(name, now + self._stay_s) for name in self._open if name not in wanted}
        for name in [name for name, until in self._leaving.items() if until <= now]:
            del self._leaving[name]
            await self._open.pop(name).provider.close()

    def provider(self, capability: str) -> Provider:
        """See `gateway.plane.ProviderSet`."""
        return self._open[capability].provider

    def ready(self, capability: str) -> bool:
        """See `gateway.plane.ProviderSet`."""
        return self._open[capability].ready

    def inside_boundary(self, capability: str) -> bool:
        """See `gateway.plane.ProviderSet`."""
        entry = self._open[capability]
        return entry.capability.boundary is Boundary.EXTERNAL or entry.opened.standing not in _NOT_INSIDE

    async def close(self) -> None:
        """Close every connection."""
        for entry in self._open.values():
            await entry.provider.close()
        await self._outbound.close()
