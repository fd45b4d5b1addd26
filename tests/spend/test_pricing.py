"""Prices, worst cases and costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.core.prices import Prices, prices_audio
from terraflow.ports.upstream import Usage
from terraflow.spend.pricing import UnknownPrice, cost, worst_case

# 3 and 15 dollars a million tokens, cached input a tenth, cache writes 1.25 times, as Anthropic's Sonnet was sold.
SONNET = Prices(input=3_000_000, output=15_000_000, cached_input=300_000, cache_write=3_750_000)


def test_a_cost_is_the_sum_of_each_kind_at_its_price() -> None:
    usage = Usage(input=1_000, cached_input=10_000, cache_write=2_000, output=500, reasoning=100)
    assert cost(SONNET, usage) == 3_000 + 3_000 + 7_500 + 7_500 + 1_500


def test_a_request_is_rounded_up_once() -> None:
    cheap = Prices(input=150_000, output=600_000)
    assert cost(cheap, Usage(input=1)) == 1
    assert cost(cheap, Usage(input=3, output=1)) == 2  # 0.45 + 0.6
    assert cost(cheap, Usage()) == 0
    assert worst_case(cheap, input_tokens_bound=3, output_tokens_max=1, choices=1, audio=False) == 2


def test_a_kind_without_a_price_counts_at_a_price_that_bounds_it() -> None:
    plain = Prices(input=1_000_000, output=4_000_000)
    assert cost(plain, Usage(cached_input=10)) == 10
    assert cost(plain, Usage(cache_write=10)) == 20
    assert cost(plain, Usage(reasoning=10)) == 40
    free_cache = Prices(input=1_000_000, output=4_000_000, cached_input=0, cache_write=0, reasoning=0)
    assert cost(free_cache, Usage(cached_input=10, cache_write=10, reasoning=10)) == 0


def test_audio_without_a_price_has_no_cost_and_no_worst_case() -> None:
    with pytest.raises(UnknownPrice):
        cost(SONNET, Usage(audio_input=1))
    with pytest.raises(UnknownPrice):
        cost(SONNET, Usage(audio_output=1))
    with pytest.raises(UnknownPrice):
        worst_case(SONNET, input_tokens_bound=1, output_tokens_max=1, choices=1, audio=True)
    half = Prices(input=1, output=1, audio_input=1)
    assert not prices_audio(half) and prices_audio(None)


def test_the_worst_case_takes_the_dearest_price_of_each_side_and_every_choice() -> None:
    assert worst_case(SONNET, input_tokens_bound=1_000, output_tokens_max=10, choices=3, audio=False) == 3_750 + 450
    voice = Prices(input=1, output=2, reasoning=3_000_000, audio_input=10_000_000, audio_output=20_000_000)
    assert worst_case(voice, input_tokens_bound=10, output_tokens_max=10, choices=1, audio=False) == 31
    assert worst_case(voice, input_tokens_bound=10, output_tokens_max=10, choices=1, audio=True) == 300


def test_without_prices_nobody_sends_a_bill() -> None:
    assert cost(None, Usage(input=5, audio_input=5)) == 0
    assert worst_case(None, input_tokens_bound=5, output_tokens_max=5, choices=1, audio=True) == 0


price = st.integers(0, 100_000_000)
known = st.builds(
    Prices,
    input=price,
    output=price,
    cached_input=price,
    cache_write=price,
    reasoning=price,
    audio_input=price,
    audio_output=price,
)
tokens = st.integers(0, 200_000)
usages = st.builds(
    Usage,
    input=tokens,
    cached_input=tokens,
    cache_write=tokens,
    audio_input=tokens,
    output=tokens,
    reasoning=tokens,
    audio_output=tokens,
)


@given(known, usages)
def test_no_use_within_the_bounds_costs_more_than_the_worst_case(prices: Prices, usage: Usage) -> None:
    worst = worst_case(
        prices, input_tokens_bound=usage.input_total, output_tokens_max=usage.output_total, choices=1, audio=True
    )
    assert 0 <= cost(prices, usage) <= worst


@given(known, usages, usages)
def test_a_cost_is_exact_to_the_rounding(prices: Prices, one: Usage, other: Usage) -> None:
    both = Usage(**{f: getattr(one, f) + getattr(other, f) for f in Usage.__struct_fields__ if f != "estimated"})
    parts = cost(prices, one) + cost(prices, other)
    assert parts - 1 <= cost(prices, both) <= parts
