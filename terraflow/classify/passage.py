"""Bounded looks at the bytes around a candidate.

1. Every look has a reach in bytes, so a validator's cost does not depend on the length of the text.
2. `BREAK` stands between texts that do not belong together; no look crosses it.
"""

from __future__ import annotations

BREAK = b"\x00"

DIGITS = b"0123456789"
LOWER = b"abcdefghijklmnopqrstuvwxyz"
UPPER = LOWER.upper()
LETTERS = LOWER + UPPER
ALNUM = DIGITS + LETTERS
WORD = ALNUM + b"_"
URLSAFE = WORD + b"-"
HEX_LOWER = b"0123456789abcdef"
HEX = HEX_LOWER + b"ABCDEF"
BASE32 = UPPER + b"234567"
BASE64 = ALNUM + b"+/"

Span = tuple[int, int]
"""Start and end offsets of a value, end exclusive, in bytes of the reading that was scanned."""

_WORDS_ONLY = bytes(c | 0x20 if c | 0x20 in LOWER else 0x20 for c in range(256))


def run_stop(data: bytes, start: int, alphabet: bytes, reach: int) -> int:
    """Where the run of `alphabet` that begins at `start` stops; looks at `reach` bytes at most."""
    window = data[start : start + reach]
    return start + len(window) - len(window.lstrip(alphabet))


def run_start(data: bytes, stop: int, alphabet: bytes, reach: int) -> int:
    """Where the run of `alphabet` that ends at `stop` starts; looks at `reach` bytes at most."""
    window = data[max(0, stop - reach) : stop]
    return stop - len(window) + len(window.rstrip(alphabet))


def stretch(data: bytes, start: int, stop: int, reach: int) -> bytes:
    """The bytes around a value, `reach` to either side at most, as far as they belong to the same text."""
    before = data[max(0, start - reach) : start].rpartition(BREAK)[2]
    return before + data[start:stop] + data[stop : stop + reach].partition(BREAK)[0]


def apart(data: bytes, start: int, stop: int) -> bool:
    """Whether the value is not a piece of a longer code: only letters may touch it ("ID4111…", "n123-45-6789")."""
    left, right = run_start(data, start, LETTERS, 24), run_stop(data, stop, LETTERS, 24)
    return data[left - 1] not in WORD and data[right] not in WORD


def words_before(data: bytes, start: int, reach: int) -> set[bytes]:
    """Lower-case ASCII words in the `reach` bytes before `start`, whole words only."""
    low = max(0, start - reach)
    low = max(low, data.rfind(BREAK, low, start) + 1)
    if low and data[low - 1] in ALNUM:
        low = run_stop(data, low, ALNUM, reach)
    return set(data[low:start].translate(_WORDS_ONLY).split())


def words_after(data: bytes, stop: int, reach: int) -> set[bytes]:
    """Lower-case ASCII words in the `reach` bytes after `stop`; the last one may be cut."""
    high = min(len(data), stop + reach)
    cut = data.find(BREAK, stop, high)
    return set(data[stop : high if cut < 0 else cut].translate(_WORDS_ONLY).split())


def in_context(data: bytes, start: int, stop: int, words: frozenset[bytes], *, reach: int = 64) -> bool:
    """Whether one of `words` stands within `reach` bytes before the value or half of that after it."""
    before = words_before(data, start, reach)
    return not words.isdisjoint(before) or not words.isdisjoint(words_after(data, stop, reach // 2))


def otherwise(data: bytes, start: int, words: frozenset[bytes], *, reach: int = 32) -> bool:
    """Whether the text just before the value names it as something else (an order number, an ISBN)."""
    return not words.isdisjoint(words_before(data, start, reach))
