"""Where a log's parts lie and how entries are packed: C2SP tlog-tiles.

1. A tile is `tile/<level>/<index>`, a bundle of entries `tile/entries/<index>`; an unfinished one ends in
   `.p/<width>`.
2. An index is written in groups of three digits, every group but the last behind an `x`: 1234067 is
   `x001/x234/067`.
3. A bundle is its entries one after another, each behind its length as two bytes, big-endian; so no entry is
   longer than 65 535 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from terraflow.evidence.merkle import TILE_HEIGHT, TILE_WIDTH

ENTRY_BYTES_MAX = 65_535


def tile_path(level: int, index: int, width: int = TILE_WIDTH) -> str:
    """The path of a tile of hashes."""
    return f"tile/{level}/{_index_path(index, width)}"


def bundle_path(index: int, width: int = TILE_WIDTH) -> str:
    """The path of a bundle of entries."""
    return f"tile/entries/{_index_path(index, width)}"


def _index_path(index: int, width: int) -> str:
    groups = [f"{index % 1000:03d}"]
    while index := index // 1000:
        groups.append(f"x{index % 1000:03d}")
    return "/".join(reversed(groups)) + (f".p/{width}" if width < TILE_WIDTH else "")


def tiles_of(size: int) -> Iterator[tuple[int, int, int]]:
    """(level, index, width) of every tile that a tree of `size` leaves has, lowest level first."""
    level = 0
    while hashes := size >> (TILE_HEIGHT * level):
        for index in range(hashes // TILE_WIDTH):
            yield level, index, TILE_WIDTH
        if hashes % TILE_WIDTH:
            yield level, hashes // TILE_WIDTH, hashes % TILE_WIDTH
        level += 1


def encode_bundle(entries: Iterable[bytes]) -> bytes:
    """A bundle of entries (rule 3); raises OverflowError for an entry that is too long."""
    return b"".join([len(entry).to_bytes(2, "big") + entry for entry in entries])
