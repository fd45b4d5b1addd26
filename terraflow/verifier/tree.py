"""The Merkle tree, computed again. RFC 6962 section 2.1; tiles as C2SP tlog-tiles cuts them.

A `Levels` is the whole tree as its tile levels hold it: element L is the joined hashes of all perfect subtrees of
256^L leaves, from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

HASH = 32
WIDTH = 256
TILE = WIDTH * HASH

Levels = Sequence[bytes]


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\1" + left + right).digest()


def perfect_root(hashes: bytes) -> bytes:
    """The root over a power of two of joined hashes."""
    while len(hashes) > HASH:
        hashes = b"".join(
            [sha256(b"\1" + hashes[at : at + 2 * HASH]).digest() for at in range(0, len(hashes), 2 * HASH)]
        )
    return hashes


def levels_above(tile_roots: bytes) -> list[bytes]:
    """Levels 1, 2, … given level 1: the roots of all full tiles of leaves."""
    levels = [tile_roots]
    while len(levels[-1]) >= TILE:
        below = levels[-1]
        full = range(0, len(below) - len(below) % TILE, TILE)
        levels.append(b"".join([perfect_root(below[at : at + TILE]) for at in full]))
    return levels


def root_at(size: int, levels: Levels) -> bytes:
    """The root that the tree had at `size` leaves, at most as many as `levels` covers."""
    if size == 0:
        return sha256(b"").digest()
    above: bytes | None = None
    for level, hashes in enumerate(levels):
        count = size >> (8 * level)
        for height in range(8):
            if count >> height & 1:
                end = (count >> height << height) * HASH
                peak = perfect_root(hashes[end - (HASH << height) : end])
                above = peak if above is None else node_hash(peak, above)
    assert above is not None
    return above


def root_of_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that an audit path leads to from a leaf's hash; None if its length is wrong (RFC 9162 2.1.3.2)."""
    if not 0 <= index < size:
        return None
    here, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if here & 1 or here == last:
            node = node_hash(sibling, node)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        here, last = here >> 1, last >> 1
    return node if last == 0 else None
