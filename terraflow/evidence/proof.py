"""Proofs from tiles: that a leaf is in a tree, and that one tree continues another.

Sources: RFC 6962 section 2.1.1 (audit path); C2SP tlog-proof for the text form.
Every subtree that a proof needs lies in published tiles; no leaf is read.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.evidence.checkpoint import open_checkpoint
from terraflow.evidence.merkle import (
    HASH_BYTES,
    TILE_HEIGHT,
    TILE_WIDTH,
    ReadTile,
    TileMissing,
    fold_peaks,
    load,
    roll_up,
    root,
)
from terraflow.ports.ledger import Ledger

HEADER = "c2sp.org/tlog-proof@v1"


def root_at(size: int, read: ReadTile) -> bytes:
    """The root hash that the tree had at `size` leaves. Raises TileMissing."""
    return root(load(size, read))


def inclusion_path(index: int, size: int, read: ReadTile) -> list[bytes]:
    """The audit path of leaf `index` in the tree of `size` leaves, from its sibling upwards."""
    if not 0 <= index < size:
        raise ValueError("the leaf is not in the tree")
    low, high, path = 0, size, []
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_subtree(middle, high, read))
            high = middle
        else:
            path.append(_subtree(low, middle, read))
            low = middle
    return path[::-1]


def proof_text(index: int, path: Sequence[bytes], checkpoint: bytes) -> bytes:
    """A tlog-proof: the leaf's index, its path, and the signed checkpoint as it was published."""
    lines = [HEADER, f"index {index}", *(base64.b64encode(node).decode() for node in path), "", ""]
    return "\n".join(lines).encode() + checkpoint


def prove(ledger: Ledger, tenant: str, index: int, key: Ed25519PublicKey) -> bytes | None:
    """The tlog-proof of a tenant's leaf; None while no published checkpoint covers it."""
    note = ledger.checkpoint(tenant)
    if note is None:
        return None
    size = open_checkpoint(note, tenant, key).size
    if index >= size:
        return None
    return proof_text(index, inclusion_path(index, size, lambda level, at: ledger.tile(tenant, level, at)), note)


def _split(width: int) -> int:
    return 1 << (width - 1).bit_length() - 1


def _subtree(low: int, high: int, read: ReadTile) -> bytes:
    """The hash over leaves low <= i < high, where `low` is a multiple of the largest power of two in the width."""
    peaks = []
    while low < high:
        height = (high - low).bit_length() - 1
        peaks.append(_perfect(height, low >> height, read))
        low += 1 << height
    return fold_peaks(peaks)


def _perfect(height: int, position: int, read: ReadTile) -> bytes:
    level, above = divmod(height, TILE_HEIGHT)
    index, first = divmod(position << above, TILE_WIDTH)
    start, end = first * HASH_BYTES, (first + (1 << above)) * HASH_BYTES
    hashes = read(level, index)
    if hashes is None or len(hashes) < end:
        raise TileMissing(level, index)
    return roll_up(hashes[start:end])
