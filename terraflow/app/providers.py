"""The providers of the active bundle, each bound to the definition that policy decided on.

1. A bundle's providers are opened before it comes into force, all of them or none.
2. A request keeps the bundle that it began under: it is called on the very definition that was planned, also when a
   newer bundle has changed or dropped it meanwhile. What no bundle in force names is closed when no request can need
   it any more.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable

import msgspec

from terraflow.app.settings import Settings, read_secret
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Boundary, Capability
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Provider
from terraflow.providers.endpoint import Standing
from terraflow.providers.fleet import Advice
from terraflow.providers.open import Opened, open_provider
from terraflow.providers.outbound import Outbound

log = logging.getLogger("terraflow.providers")

_NOT_INSIDE = (Standing.OUTSIDE, Standing.FORBIDDEN)


class _Entry(msgspec.Struct, frozen=True):
    """A capability of a bundle; `opened` is None while its credential is not there."""

    capability: Capability
    opened: Opened | None
    provider: Provider | None


class OpenProviders:
    """A `ProviderSet` that follows the active bundle. An unchanged capability keeps its provider and connections."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        wrap: Callable[[str, Provider], Provider],
        advise: Callable[[Capability], Advice],
    ) -> None:
        networks = [ipaddress.ip_network(network) for network in settings.private_networks]
        self._outbound = Outbound(networks, connections_max=settings.upstream_connections_max)
        self._clock = clock
        self._wrap = wrap
        self._advise = advise
        self._stay_s = settings.deadline_ms_max / 1000
        self._open: dict[str, _Entry] = {}
        self._retired: dict[asyncio.Task[None], _Entry] = {}

    async def follow(self, bundle: Bundle) -> None:
        """Open what the bundle names, and retire what it does not. On an error nothing has changed."""
        changed = [c for c in bundle.capabilities.values() if not self._has(c)]
        found = await asyncio.gather(*(self._opened(capability) for capability in changed), return_exceptions=True)
        opened = {entry.capability.id: entry for entry in found if isinstance(entry, _Entry)}
        failed = next((error for error in found if isinstance(error, BaseException)), None)
        if failed is not None:
            await _close(opened.values())
            raise failed
        leaving = [entry for name, entry in self._open.items() if name in opened or name not in bundle.capabilities]
        # What stays is known by the new bundle's definition: requests ask by it, and are spared comparing the two.
        self._open = {
            name: opened.get(name) or msgspec.structs.replace(self._open[name], capability=definition)
            for name, definition in bundle.capabilities.items()
        }
        for entry in leaving:
            retiring = asyncio.create_task(self._retire(entry))
            self._retired[retiring] = entry
            retiring.add_done_callback(self._retired.pop)

    async def _retire(self, entry: _Entry) -> None:
        try:
            await self._clock.sleep(self._stay_s)
        finally:
            await _close((entry,))

    def _has(self, capability: Capability) -> bool:
        known = self._open.get(capability.id)
        return known is not None and known.capability == capability

    async def _opened(self, capability: Capability) -> _Entry:
        secret = None if capability.secret is None else read_secret(capability.secret)
        if capability.secret is not None and secret is None:
            return _Entry(capability, None, None)
        try:
            advice = None if capability.fleet is None else self._advise(capability)
            opened = await open_provider(capability, secret, self._outbound, self._clock, advice)
        except ValueError as unusable:
            if secret is None:
                raise
            # The endpoint's form was checked when the bundle was accepted: it is the credential's.
            log.error("capability %s is off: %s", capability.id, unusable)
            return _Entry(capability, None, None)
        return _Entry(capability, opened, self._wrap(capability.id, opened.provider))

    def provider(self, capability: Capability) -> Provider:
        """See `gateway.plane.ProviderSet`."""
        found = self._entry(capability).provider
        if found is None:
            raise KeyError(capability.id)
        return found

    def ready(self, capability: Capability) -> bool:
        """See `gateway.plane.ProviderSet`."""
        return self._entry(capability).opened is not None

    def inside_boundary(self, capability: Capability) -> bool:
        """See `gateway.plane.ProviderSet`. A name that has never resolved counts as inside: its calls fail without a
        connection."""
        entry = self._entry(capability)
        outside = entry.opened is not None and entry.opened.standing in _NOT_INSIDE
        return capability.boundary is Boundary.EXTERNAL or not outside

    def under_pressure(self, capability: Capability) -> bool:
        """See `gateway.plane.ProviderSet`."""
        opened = self._entry(capability).opened
        return opened is not None and opened.exhausted is not None and opened.exhausted()

    def _entry(self, capability: Capability) -> _Entry:
        """Raises KeyError for a definition that was never in force, or no longer is for anybody."""
        found = self._open.get(capability.id)
        if found is not None and (found.capability is capability or found.capability == capability):
            return found
        for old in self._retired.values():
            if old.capability == capability:
                return old
        raise KeyError(capability.id)

    async def close(self) -> None:
        """Close every connection."""
        retiring = tuple(self._retired)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        await _close(self._open.values())
        await self._outbound.close()


async def _close(entries: Iterable[_Entry]) -> None:
    for entry in entries:
        if entry.provider is not None:
            await entry.provider.close()
