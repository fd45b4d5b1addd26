"""What a vendor asks for each kind of token.

1. A price is micro-dollars per million tokens.
2. An absent price is unknown, never zero; a negative one is refused where it is parsed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Price = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The prices of one capability; each kind of token is counted once (see `ports.upstream.Usage`)."""

    input: Annotated[Price, Meta(description="Input that no other price names.")]
    output: Annotated[Price, Meta(description="Output that no other price names.")]
    cached_input: Annotated[Price | None, Meta(description="Input read from the vendor's cache.")] = None
    cache_write: Annotated[Price | None, Meta(description="Input written to the vendor's cache.")] = None
    reasoning: Annotated[Price | None, Meta(description="Output that only the model reads.")] = None
    audio_input: Annotated[Price | None, Meta(description="Input of sound.")] = None
    audio_output: Annotated[Price | None, Meta(description="Output of sound.")] = None


def prices_audio(prices: Prices | None) -> bool:
    """Whether a call with audio can be priced. Audio costs many times what text does: without prices of its own nothing
    bounds it. Where nobody asks any price, nobody asks one for audio."""
    return prices is None or (prices.audio_input is not None and prices.audio_output is not None)
