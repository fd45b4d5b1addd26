"""From the capabilities of a bundle to providers that can be called: one row a kind.

1. A credential goes from here into its provider's headers, and nowhere else.
2. A capability whose credential is not set is not opened, and is not ready.
"""

from __future__ import annotations

from collections.abc import Callable

from terraflow.contracts.capability import Capability, ProviderKind
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Provider
from terraflow.providers import anthropic, openai
from terraflow.providers.endpoint import Standing, parse_place
from terraflow.providers.outbound import Endpoint, Outbound
from terraflow.providers.simulated import SimulatedProvider

_Adapter = Callable[[Capability, Endpoint, str | None, Outbound], Provider]

_REMOTE: dict[ProviderKind, tuple[str, _Adapter]] = {
    ProviderKind.OPENAI: (openai.DEFAULT_ENDPOINT, openai.OpenAiProvider),
    ProviderKind.ANTHROPIC: (anthropic.DEFAULT_ENDPOINT, anthropic.AnthropicProvider),
}


class Opened:
    """A provider, and whether it may be called at this moment."""

    __slots__ = ("_endpoint", "provider")

    def __init__(self, provider: Provider, endpoint: Endpoint | None) -> None:
        self.provider = provider
        self._endpoint = endpoint

    @property
    def standing(self) -> Standing:
        """What the last check of the endpoint said; a simulated capability has none to check."""
        return Standing.PERMITTED if self._endpoint is None else self._endpoint.standing


async def open_provider(capability: Capability, secret: str | None, outbound: Outbound, clock: Clock) -> Opened:
    """The provider of a capability. Raises ValueError, naming the rule and no value, for an endpoint, a dialect or
    a credential of wrong form."""
    if capability.provider is ProviderKind.SIMULATED:
        return Opened(SimulatedProvider(capability.script, clock), None)
    default, adapter = _REMOTE[capability.provider]
    place = parse_place(capability.endpoint or default)
    endpoint = await outbound.open(place, capability.boundary)
    try:
        return Opened(adapter(capability, endpoint, secret, outbound), endpoint)
    except ValueError:
        outbound.release(endpoint)
        raise
