"""What work costs in an engine: seconds, from tokens.

1. Prefill is one request at a time, first come first served, and costs the tokens that no cache held; blocks that come
   back from the offloaded tier cost their loading.
2. Decode goes on beside it: each request at its own pace, whoever else runs.
3. `speed` makes everything that many times faster, so that an hour's trace plays in a minute.
"""

from __future__ import annotations

import msgspec


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's speeds, in tokens a second of its own time."""

    prefill_tokens_per_s: float = 8_000.0
    decode_tokens_per_s: float = 100.0
    load_tokens_per_s: float = 80_000.0
    """From the offloaded tier."""
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not all(rate > 0 for rate in (self.prefill_tokens_per_s, self.decode_tokens_per_s, self.load_tokens_per_s)):
            raise ValueError("speeds are above 0")
        if not self.speed > 0:
            raise ValueError("the scale of time is above 0")

    def prefill_s(self, missed_tokens: int, loaded_tokens: int = 0) -> float:
        """How long the prefill takes."""
        return (missed_tokens / self.prefill_tokens_per_s + loaded_tokens / self.load_tokens_per_s) / self.speed

    def decode_s(self, tokens: int) -> float:
        """How long so many tokens of output take."""
        return tokens / self.decode_tokens_per_s / self.speed
