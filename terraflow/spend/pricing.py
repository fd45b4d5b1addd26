"""What a call can cost at worst, and what it did cost.

1. Integers only; a request is rounded up to a whole micro-dollar once, at the end, never per kind of token.
2. No prices at all means that nobody sends a bill: 0. (A paid capability without prices is excluded before.)
3. A kind of token without a price of its own counts at the price of the kind it is a part of for some vendors:
   cached input as input, reasoning as output. A cache write counts as twice the input price, the dearest that a
   vendor asks today (Anthropic: 1.25 times for five minutes, twice for an hour). Audio costs many times what text
   does, and no price of text bounds it: without its own price it is UnknownPrice.
4. While each kind that a call uses has its price, `cost` of what stays within the bounds is at most `worst_case`.
"""

from __future__ import annotations

from terraflow.core.prices import Prices, prices_audio
from terraflow.ports.upstream import Usage

PER_TOKENS = 1_000_000
CACHE_WRITE_FACTOR = 2


class UnknownPrice(ValueError):
    """There is no price for a kind of token that the call uses."""


def worst_case(
    prices: Prices | None, *, input_tokens_bound: int, output_tokens_max: int, choices: int, audio: bool
) -> int:
    """Micro-dollars of the longest answer in every choice to an input of at most so many tokens.

    Every token counts at the dearest known price of its side. Raises UnknownPrice for audio without prices.
    """
    if prices is None:
        return 0
    if audio and not prices_audio(prices):
        raise UnknownPrice("audio has no price")
    dearest_input = max(
        prices.input, prices.cached_input or 0, prices.cache_write or 0, (prices.audio_input or 0) if audio else 0
    )
    dearest_output = max(prices.output, prices.reasoning or 0, (prices.audio_output or 0) if audio else 0)
    return _whole(input_tokens_bound * dearest_input + output_tokens_max * choices * dearest_output)


def cost(prices: Prices | None, usage: Usage) -> int:
    """Micro-dollars of the tokens that a vendor counted. Raises UnknownPrice for audio tokens without a price."""
    if prices is None:
        return 0
    cached_input = prices.input if prices.cached_input is None else prices.cached_input
    cache_write = prices.input * CACHE_WRITE_FACTOR if prices.cache_write is None else prices.cache_write
    reasoning = prices.output if prices.reasoning is None else prices.reasoning
    return _whole(
        usage.input * prices.input
        + usage.cached_input * cached_input
        + usage.cache_write * cache_write
        + usage.output * prices.output
        + usage.reasoning * reasoning
        + _audio(usage.audio_input, prices.audio_input)
        + _audio(usage.audio_output, prices.audio_output)
    )


def _audio(tokens: int, price: int | None) -> int:
    if not tokens:
        return 0
    if price is None:
        raise UnknownPrice("audio has no price")
    return tokens * price


def _whole(millionths: int) -> int:
    return -(-millionths // PER_TOKENS)
