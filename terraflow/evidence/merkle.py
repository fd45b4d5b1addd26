"""The Merkle tree of a log: growing it, and its root. RFC 6962 section 2.1, SHA-256.

1. A leaf is hashed behind a zero byte and a node behind a one byte, so that neither can pass for the other.
2. A `Tree` is all that growing needs: the peaks (the roots of its perfect subtrees, largest first) and the edges
   (the unfinished tile of every tile level). It is a value; `grow` returns the next one and the tiles that
   changed.
3. Adding a leaf costs one leaf hash and, on average, one node hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

import msgspec

from terraflow.ports.ledger import Tile

HASH_BYTES = 32
TILE_HEIGHT = 8
TILE_WIDTH = 2**TILE_HEIGHT
TILE_BYTES = TILE_WIDTH * HASH_BYTES
EMPTY_ROOT = sha256(b"").digest()

ReadTile = Callable[[int, int], bytes | None]
"""The hashes of the tile at (level, index), None if there is none."""


class TileMissing(Exception):
    """A tile that the tree's size calls for is not there, or is narrower than the size says."""

    def __init__(self, level: int, index: int) -> None:
        super().__init__(f"tile {level}/{index} is missing or too narrow")


class Tree(msgspec.Struct, frozen=True):
    """A log's tree of `size` leaves (rule 2)."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()
    edges: tuple[bytes, ...] = ()


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one leaf."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees side by side."""
    return sha256(b"\1" + left + right).digest()


def roll_up(hashes: bytes) -> bytes:
    """The root over joined hashes whose number is a power of two."""
    while len(hashes) > HASH_BYTES:
        step = 2 * HASH_BYTES
        hashes = b"".join([sha256(b"\1" + hashes[i : i + step]).digest() for i in range(0, len(hashes), step)])
    return hashes


def root(tree: Tree) -> bytes:
    """The root hash of the whole tree."""
    return fold_peaks(tree.peaks)


def fold_peaks(peaks: Sequence[bytes]) -> bytes:
    """The root over perfect subtrees given largest first, as they lie from left to right."""
    if not peaks:
        return EMPTY_ROOT
    above = peaks[-1]
    for peak in reversed(peaks[:-1]):
        above = node_hash(peak, above)
    return above


def grow(tree: Tree, leaf_hashes: Iterable[bytes]) -> tuple[Tree, list[Tile]]:
    """The tree with leaves added, and every tile that is new or wider than before, whole."""
    size, peaks, edges = tree.size, list(tree.peaks), [bytearray(edge) for edge in tree.edges]
    finished: list[Tile] = []

    def put(level: int, node: bytes) -> None:
        if level == len(edges):
            edges.append(bytearray())
        edge = edges[level]
        edge += node
        if len(edge) == TILE_BYTES:
            finished.append(Tile(level, size >> (TILE_HEIGHT * (level + 1)), bytes(edge)))
            edge.clear()

    for node in leaf_hashes:
        put(0, node)
        height, complete = 0, size
        while complete & 1:
            node = sha256(b"\1" + peaks.pop() + node).digest()
            complete >>= 1
            height += 1
            if height % TILE_HEIGHT == 0:
                put(height // TILE_HEIGHT, node)
        peaks.append(node)
        size += 1
    grown = Tree(size, tuple(peaks), tuple(bytes(edge) for edge in edges))
    return grown, finished + _widened(tree, grown)


def _widened(before: Tree, after: Tree) -> list[Tile]:
    tiles = []
    for level, edge in enumerate(after.edges):
        index = after.size >> (TILE_HEIGHT * (level + 1))
        known = level < len(before.edges) and before.size >> (TILE_HEIGHT * (level + 1)) == index
        if edge and not (known and before.edges[level] == edge):
            tiles.append(Tile(level, index, edge))
    return tiles


def load(size: int, read: ReadTile) -> Tree:
    """The tree of `size` leaves from its published tiles. Raises TileMissing."""
    edges: list[bytes] = []
    level = 0
    while size >> (TILE_HEIGHT * level):
        width = (size >> (TILE_HEIGHT * level)) % TILE_WIDTH
        edges.append(_part(read, level, size >> (TILE_HEIGHT * (level + 1)), width))
        level += 1
    peaks = [peak for edge in reversed(edges) for peak in _peaks(edge)]
    return Tree(size, tuple(peaks), tuple(edges))


def _peaks(hashes: bytes) -> list[bytes]:
    width, start, peaks = len(hashes) // HASH_BYTES, 0, []
    for height in reversed(range(TILE_HEIGHT)):
        if width >> height & 1:
            end = start + (HASH_BYTES << height)
            peaks.append(roll_up(hashes[start:end]))
            start = end
    return peaks


def _part(read: ReadTile, level: int, index: int, width: int) -> bytes:
    if width == 0:
        return b""
    hashes = read(level, index)
    if hashes is None or len(hashes) < width * HASH_BYTES:
        raise TileMissing(level, index)
    return hashes[: width * HASH_BYTES]
