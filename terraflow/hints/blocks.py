"""Token ids to chained block keys, as engines and gateways of the contract derive them.

1. content[i] is XXH3-64, seed 1337, over the block's ids as little-endian u32.
2. prefix[0] is content[0], or chained from a known parent; prefix[i] is XXH3-64 over prefix[i−1] and content[i], each a
   little-endian u64.
3. On the wire a hash is 8 bytes, big-endian. A part block at the end has no key.

The scheme and its vectors are those of the public repository cachebox-project/inference-cache.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

SEED = 1337
BLOCK_TOKENS = 16
"""Tokens a block unless set otherwise; engines' default."""

_PAIR = struct.Struct("<QQ").pack
_WIRE = struct.Struct(">Q").pack
_TOKEN_BYTES = 4


def content_hashes(token_ids: Sequence[int], block_tokens: int = BLOCK_TOKENS) -> list[int]:
    """A hash for each whole block alone, in order.

    `token_ids` are 0 … 2³²−1, else OverflowError; `block_tokens` is 1 or more, else ValueError.
    """
    if block_tokens < 1:
        raise ValueError(f"a block has at least one token, not {block_tokens}")
    ids = array("I", token_ids)
    if sys.byteorder != "little":
        ids.byteswap()
    raw = memoryview(ids.tobytes())
    step = block_tokens * _TOKEN_BYTES
    return [xxh3_64_intdigest(raw[at : at + step], SEED) for at in range(0, len(raw) - step + 1, step)]


def prefix_hashes(token_ids: Sequence[int], block_tokens: int = BLOCK_TOKENS, parent: int | None = None) -> list[int]:
    """A hash for each whole block and all before it; `parent` is the prefix hash of the block before the first."""
    chained = content_hashes(token_ids, block_tokens)
    for at, content in enumerate(chained):
        if parent is not None:
            chained[at] = content = xxh3_64_intdigest(_PAIR(parent, content), SEED)
        parent = content
    return chained


def wire(value: int) -> bytes:
    """A hash as the contract sends it: 8 bytes, big-endian."""
    return _WIRE(value)


def block_keys(token_ids: Sequence[int], block_tokens: int = BLOCK_TOKENS, parent: int | None = None) -> list[bytes]:
    """The wire hashes of a prompt's whole blocks: what a lookup sends as its chain. Errors as `content_hashes`."""
    return list(map(_WIRE, prefix_hashes(token_ids, block_tokens, parent)))
