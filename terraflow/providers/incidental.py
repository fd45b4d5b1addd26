"""What a vendor says beside an answer.

1. It is shown where it has the shape that is known, else left out: an answer that was paid for is an answer without it,
   too.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")

UNSAID = msgspec.Raw(b"null")


def known(said: msgspec.Raw, shape: msgspec.json.Decoder[_T]) -> _T | None:
    """What was said, None if it is unsaid or of another shape."""
    if said is UNSAID:
        return None
    try:
        return shape.decode(said)
    except (msgspec.DecodeError, RecursionError):
        return None
