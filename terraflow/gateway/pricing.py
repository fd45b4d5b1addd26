"""What a request can cost, and did cost, on a capability: the pure prices of `spend`, asked with the capability's."""

from __future__ import annotations

import msgspec

from terraflow.contracts.capability import Capability, ProviderKind
from terraflow.core.prices import Prices
from terraflow.ports.upstream import ModelRequest, Usage
from terraflow.spend.pricing import CACHE_WRITE_FACTOR, cost, worst_case


def worst_case_of(capability: Capability, request: ModelRequest, output_tokens_max: int) -> int:
    """Micro-dollars of the worst case: the input at its bound in tokens, and the longest answer in every choice."""
    return worst_case(
        _prices(capability),
        input_tokens_bound=request.input_bound,
        output_tokens_max=output_tokens_max,
        choices=request.choices,
        audio=request.audio,
    )


def cost_of(capability: Capability, usage: Usage) -> int:
    """Micro-dollars of what was used. Raises UnknownPrice."""
    return cost(_prices(capability), usage)


def _prices(capability: Capability) -> Prices | None:
    """A vendor that bills cache writes, without a price for them: the dearest that it asks, in the worst case as in
    the cost, so that no cost exceeds what was reserved for it."""
    prices = capability.prices
    if capability.provider is not _ANTHROPIC or prices is None or prices.cache_write is not None:
        return prices
    return msgspec.structs.replace(prices, cache_write=prices.input * CACHE_WRITE_FACTOR)


# Looking a member up in its enumeration costs as much as the rest of the test.
_ANTHROPIC = ProviderKind.ANTHROPIC
