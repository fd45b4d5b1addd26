"""From the capabilities of a bundle to providers that can be called: one row a kind.

1. A credential goes from here into its provider's headers, and nowhere else.
2. A capability whose credential is not set is not opened, and is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

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


class Providers:
    """The providers of one bundle, by capability."""

    def __init__(self, opened: Mapping[str, Opened]) -> None:
        self._opened = opened

    @classmethod
    async def open(
        cls, capabilities: Iterable[Capability], secrets: Mapping[str, str], outbound: Outbound, clock: Clock
    ) -> Providers:
        """Open every capability whose credential is in `secrets` (by its name, `env:NAME`) or that needs none.
        Raises ValueError as `open_provider` does; nothing stays open then."""
        able = [c for c in capabilities if c.secret is None or c.secret in secrets]
        found = await asyncio.gather(
            *(open_provider(c, secrets.get(c.secret or ""), outbound, clock) for c in able), return_exceptions=True
        )
        opened = {c.id: one for c, one in zip(able, found, strict=True) if isinstance(one, Opened)}
        providers = cls(opened)
        wrong = next((one for one in found if isinstance(one, BaseException)), None)
        if wrong is not None:
            await providers.close()
            raise wrong
        return providers

    def provider(self, capability: str) -> Provider:
        """The opened provider. Raises KeyError for a capability that is not open."""
        return self._opened[capability].provider

    def ready(self, capability: str) -> bool:
        """Whether the capability is open: its credential, if it needs one, is there."""
        return capability in self._opened

    def inside_boundary(self, capability: str) -> bool:
        """Whether nothing says that the address lies where its boundary may not reach. A name that has never
        resolved counts as inside: its calls fail without a connection."""
        opened = self._opened.get(capability)
        return opened is None or opened.standing in (Standing.PERMITTED, Standing.UNRESOLVED)

    async def close(self) -> None:
        """Close every provider. Idempotent."""
        for opened in self._opened.values():
            await opened.provider.close()
