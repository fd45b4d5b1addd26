"""What tokens cost: exact integers, rounded up once a request.

1. Each kind of token has its own price. A kind without one takes the dearest it could be: cached input and reasoning
   the plain input and output price, a cache write a quarter above input (the dearest any vendor asks for the shortest
   time to live; Anthropic's price list).
2. Prices are micro-dollars per million tokens; amounts are micro-dollars, rounded up, never down.
3. Without prices a capability costs nothing here: only one that nobody bills is ever called without them.
"""

from __future__ import annotations

from terraflow.core.prices import Prices
from terraflow.ports.upstream import Usage

_PER = 1_000_000


def worst_case(
    prices: Prices | None, *, input_tokens_bound: int, output_tokens_max: int, choices: int, audio: bool
) -> int:
    """The most that one call can cost: every input token at the dearest input price, and the longest answer in every
    choice at the dearest output price."""
    if prices is None:
        return 0
    into = max(prices.input, prices.cached_input or 0, _cache_write(prices))
    out = max(prices.output, prices.reasoning or 0)
    if audio:
        into = max(into, prices.audio_input or 0)
        out = max(out, prices.audio_output or 0)
    return -(-(input_tokens_bound * into + output_tokens_max * choices * out) // _PER)


def cost(prices: Prices | None, usage: Usage) -> int:
    """What a call costs by its usage."""
    if prices is None:
        return 0
    cached = prices.input if prices.cached_input is None else prices.cached_input
    reasoning = prices.output if prices.reasoning is None else prices.reasoning
    audio_in = prices.input if prices.audio_input is None else prices.audio_input
    audio_out = prices.output if prices.audio_output is None else prices.audio_output
    total = (
        usage.input * prices.input
        + usage.cached_input * cached
        + usage.cache_write * _cache_write(prices)
        + usage.audio_input * audio_in
        + usage.output * prices.output
        + usage.reasoning * reasoning
        + usage.audio_output * audio_out
    )
    return -(-total // _PER)


def _cache_write(prices: Prices) -> int:
    return -(-prices.input * 5 // 4) if prices.cache_write is None else prices.cache_write
