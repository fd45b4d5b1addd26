"""What a vendor asks for each kind of token.

1. A price is micro-dollars per million tokens.
2. An absent price is unknown, never zero; a negative one is refused where it is parsed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Price = Annotated[int, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The prices of one capability; each kind of token is counted once (see `ports.upstream.Usage`)."""

    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write: Price | None = None
    reasoning: Price | None = None
    audio_input: Price | None = None
    audio_output: Price | None = None
