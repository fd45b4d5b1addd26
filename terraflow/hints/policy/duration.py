"""Durations as Go writes and reads them: `30m`, `1h30m`, `1.5s`, `250ms`.

Source of the form: the documentation of Go's `time.ParseDuration`. A sum of decimal numbers, each with its unit;
a lone `0` needs none. Signs are refused here: no field of a manifest may be negative.
"""

from __future__ import annotations

import re
from fractions import Fraction

NANOSECONDS_MAX = 2**63 - 1
"""Go's greatest duration, about 292 years."""

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TERM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_TEXT_MAX = 64


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises ValueError with the rule that the text breaks."""
    if text == "0":
        return 0
    total = Fraction(0)
    at = 0
    while at < len(text) <= _TEXT_MAX:
        term = _TERM.match(text, at)
        if term is None:
            break
        total += Fraction(term[1].rstrip(".")) * _NANOSECONDS[term[2]]
        at = term.end()
    if not text or at != len(text):
        raise ValueError("is no duration: write it as 30m, 1h30m or 250ms")
    if total > NANOSECONDS_MAX:
        raise ValueError("is longer than a duration can be")
    return int(total)
