"""What a request can cost on a capability: the pure prices of `spend`, asked with this request's figures."""

from __future__ import annotations

from terraflow.contracts.capability import Capability
from terraflow.ports.upstream import ModelRequest
from terraflow.spend.pricing import worst_case


def worst_case_of(capability: Capability, request: ModelRequest, output_tokens_max: int) -> int:
    """Micro-dollars of the worst case: every input byte a token, and the longest answer in every choice."""
    return worst_case(
        capability.prices,
        input_tokens_bound=request.size_bytes,
        output_tokens_max=output_tokens_max,
        choices=request.choices,
        audio=request.audio,
    )
