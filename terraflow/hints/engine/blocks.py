"""An engine's own blocks: token ids to a chain of hashes that only this engine understands.

1. A hash stands for its block, all before it, and the adapter; a partial block has none.
2. The root is salted: two engines, or one before and after a restart, share no hash unless they are given one salt.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple


class HashForm(StrEnum):
    """How a hash goes over the wire."""

    INT = "int"
    """Unsigned 64 bits."""
    SIGNED = "signed"
    """Signed 64 bits."""
    BYTES = "bytes"
    """All 32 bytes."""
    TEXT = "text"
    """Hexadecimal."""


class Block(NamedTuple):
    """A block of tokens in its place."""

    hash: bytes
    """32 bytes."""
    parent: bytes | None
    tokens: tuple[int, ...]
    adapter: str


def chain(tokens: Sequence[int], block_size: int, adapter: str, salt: bytes) -> list[Block]:
    """The whole blocks of a prompt, parents first. Token ids are below 2^32."""
    above = sha256(salt + adapter.encode()).digest()
    parent, blocks = None, []
    for at in range(0, len(tokens) - block_size + 1, block_size):
        piece = tuple(tokens[at : at + block_size])
        above = sha256(above + array("Q", piece).tobytes()).digest()
        blocks.append(Block(above, parent, piece, adapter))
        parent = above
    return blocks


def shown(block_hash: bytes, form: HashForm) -> int | bytes | str:
    """A hash as the wire has it."""
    if form is HashForm.BYTES:
        return block_hash
    if form is HashForm.TEXT:
        return block_hash.hex()
    return int.from_bytes(block_hash[:8], "big", signed=form is HashForm.SIGNED)
