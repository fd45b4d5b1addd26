"""What is reserved bounds what is posted, for every vendor's way of counting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from terraflow.contracts.capability import Capability
from terraflow.gateway.pricing import cost_of, worst_case_of
from terraflow.ports.upstream import ModelRequest, Usage
from tests.harness.bundle import sim


def capability(provider: str, **prices: int) -> Capability:
    entry: dict[str, Any] = sim("m", provider=provider, prices=prices)
    return msgspec.convert(entry, Capability)


REQUEST = ModelRequest(
    document={"messages": []},
    stream=False,
    include_usage=False,
    output_tokens_max=None,
    choices=2,
    tool_names=(),
    output_schema=None,
    model=None,
    size_bytes=1_000,
)


@pytest.mark.parametrize("prices", [{}, {"cache_write": 1_250_000}, {"cached_input": 100_000}])
def test_a_cache_write_never_costs_more_than_was_reserved(prices: dict[str, int]) -> None:
    vendor = capability("anthropic", input=1_000_000, output=5_000_000, **prices)
    written = Usage(cache_write=1_000, output=20)
    assert cost_of(vendor, written) <= worst_case_of(vendor, REQUEST, 10)


def test_where_nobody_bills_writes_nothing_is_reserved_for_them() -> None:
    vendor = capability("openai", input=1_000_000, output=5_000_000)
    assert worst_case_of(vendor, REQUEST, 10) == 1_000 + 2 * 10 * 5
