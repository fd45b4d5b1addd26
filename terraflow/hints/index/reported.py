"""A report's entries as the hot table takes them: by adapter, each hash, count and tier of a size that it keeps.

1. An entry whose arrays differ in length, or with a hash that is empty or beyond `IDENTIFIER_BYTES_MAX`, is malformed
   as a whole; the others of its report are not.
2. A count beyond an int32 is kept as the greatest or least that it holds. A tier that is unset is memory, a stranger
   the coldest.
"""

from __future__ import annotations

from collections.abc import Sequence

from terraflow.hints.words import IDENTIFIER_BYTES_MAX, Entry, Tier

_COUNT_MAX = (1 << 31) - 1
_TIER_KEPT = {0: 1, 1: 1, 2: 2, 3: 3}
_COLDEST = int(Tier.UNKNOWN)

Blocks = tuple[str, list[bytes], list[int], list[int] | None]
"""Adapter, hashes, counts, tiers; tiers None: malformed."""


def by_adapter(entries: Sequence[Entry]) -> list[Blocks]:
    """One an adapter, in its order, and the malformed before them."""
    if len(entries) == 1:
        return [_parsed(entries[0])]
    whole: dict[str, tuple[list[bytes], list[int], list[int]]] = {}
    broken: list[Blocks] = []
    for adapter, hashes, counts, tiers in map(_parsed, entries):
        if tiers is None:
            broken.append((adapter, hashes, counts, None))
        elif adapter in whole:
            for mine, more in zip(whole[adapter], (hashes, counts, tiers), strict=True):
                mine.extend(more)  # type: ignore[attr-defined]
        else:
            whole[adapter] = list(hashes), list(counts), tiers
    return broken + [(adapter, *whole[adapter]) for adapter in sorted(whole)]


def _parsed(entry: Entry) -> Blocks:
    adapter, hashes, counts, tier = entry
    blocks = len(hashes)
    if blocks != len(counts):
        return adapter, hashes, counts, None
    if blocks == 1:
        size, least, most = len(hashes[0]), counts[0], counts[0]
        sound = 1 <= size <= IDENTIFIER_BYTES_MAX
    elif blocks:
        sizes, least, most = set(map(len, hashes)), min(counts), max(counts)
        sound = 0 not in sizes and max(sizes) <= IDENTIFIER_BYTES_MAX
    else:
        return adapter, hashes, counts, []
    if not sound:
        return adapter, hashes, counts, None
    if least < -_COUNT_MAX or most > _COUNT_MAX:
        counts = [max(-_COUNT_MAX, min(_COUNT_MAX, count)) for count in counts]
    return adapter, hashes, counts, [_TIER_KEPT.get(tier, _COLDEST)] * blocks
