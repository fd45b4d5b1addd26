"""From the capabilities of a bundle to providers that can be called: one row a kind.

1. A credential goes from here into its provider's headers, and nowhere else.
2. A capability whose credential is not set is not opened, and is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from terraflow.contracts.capability import Capability, ProviderKind
from terraflow.contracts.fleet import Fleet
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Provider
from terraflow.providers import anthropic, openai
from terraflow.providers.endpoint import Standing, parse_place
from terraflow.providers.fleet import Advice, FleetProvider
from terraflow.providers.outbound import Endpoint, Outbound
from terraflow.providers.replicas import Seat
from terraflow.providers.simulated import SimulatedProvider

_Adapter = Callable[[Capability, Endpoint, str | None, Outbound], Provider]

_REMOTE: dict[ProviderKind, tuple[str, _Adapter]] = {
    ProviderKind.OPENAI: (openai.DEFAULT_ENDPOINT, openai.OpenAiProvider),
    ProviderKind.ANTHROPIC: (anthropic.DEFAULT_ENDPOINT, anthropic.AnthropicProvider),
}


class Opened:
    """A provider, whether it may be called at this moment, and whether that would be too much for it."""

    __slots__ = ("_endpoints", "exhausted", "provider")

    def __init__(
        self, provider: Provider, endpoints: tuple[Endpoint, ...], exhausted: Callable[[], bool] | None = None
    ) -> None:
        self.provider = provider
        self.exhausted = exhausted
        """None: its slots alone say."""
        self._endpoints = endpoints

    @property
    def standing(self) -> Standing:
        """What the last check of the endpoint said: of several, permitted if one is. A simulated capability has none to
        check."""
        standings = [endpoint.standing for endpoint in self._endpoints]
        return Standing.PERMITTED if not standings or Standing.PERMITTED in standings else standings[0]


async def open_provider(
    capability: Capability, secret: str | None, outbound: Outbound, clock: Clock, advice: Advice | None = None
) -> Opened:
    """The provider of a capability; a fleet needs `advice`. Raises ValueError, naming the rule and no value, for an
    endpoint, a dialect or a credential of wrong form."""
    if capability.provider is ProviderKind.SIMULATED:
        return Opened(SimulatedProvider(capability.script, clock), ())
    if capability.fleet is not None:
        assert advice is not None
        return await _open_fleet(capability, capability.fleet, secret, outbound, clock, advice)
    default, adapter = _REMOTE[capability.provider]
    place = parse_place(capability.endpoint or default)
    endpoint = await outbound.open(place, capability.boundary)
    try:
        return Opened(adapter(capability, endpoint, secret, outbound), (endpoint,))
    except ValueError:
        outbound.release(endpoint)
        raise


async def _open_fleet(
    capability: Capability, fleet: Fleet, secret: str | None, outbound: Outbound, clock: Clock, advice: Advice
) -> Opened:
    members = [replica for replica in fleet.replicas if replica.enabled]
    places = [parse_place(replica.endpoint) for replica in members]
    endpoints = await asyncio.gather(*(outbound.open(place, capability.boundary) for place in places))
    seats = [Seat(replica.id, endpoint) for replica, endpoint in zip(members, endpoints, strict=True)]
    try:
        providers = [openai.OpenAiProvider(capability, endpoint, secret, outbound) for endpoint in endpoints]
    except ValueError:
        for endpoint in endpoints:
            outbound.release(endpoint)
        raise
    provider = FleetProvider(capability, seats, providers, advice, clock)
    return Opened(provider, tuple(endpoints), provider.exhausted)
