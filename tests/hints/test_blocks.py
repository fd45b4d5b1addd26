"""Block keys against the published vectors, and the sizes that fit no vector."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from terraflow.hints.blocks import block_keys, content_hashes, prefix_hashes, wire

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "fingerprints.json").read_bytes())[
    "vectors"
]


def _parent(vector: dict[str, Any]) -> int | None:
    parent = vector["parent_prefix"]
    if parent is None:
        return None
    return int(parent["dec"]) if isinstance(parent, dict) else int(parent)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_published_vector(vector: dict[str, Any]) -> None:
    ids, size, parent = vector["tokens"], vector["block_size"], _parent(vector)
    contents, prefixes = content_hashes(ids, size), prefix_hashes(ids, size, parent)
    assert contents == [int(row["dec"]) for row in vector["content_hashes"]]
    assert prefixes == [int(row["dec"]) for row in vector["prefix_hashes"]]
    assert [wire(value) for value in contents] == [base64.b64decode(row["b64be"]) for row in vector["content_hashes"]]
    assert block_keys(ids, size, parent) == [base64.b64decode(row["b64be"]) for row in vector["prefix_hashes"]]


def test_there_are_vectors_of_every_kind() -> None:
    assert len(VECTORS) >= 5
    assert any(_parent(vector) is not None for vector in VECTORS)
    assert any(len(vector["tokens"]) % vector["block_size"] for vector in VECTORS)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (15, 0), (16, 1), (17, 1), (31, 1), (32, 2), (513, 32)])
def test_a_part_block_has_no_key(tokens: int, blocks: int) -> None:
    assert len(block_keys(range(tokens))) == blocks


def test_a_chain_goes_on_from_its_parent() -> None:
    whole = prefix_hashes(range(64))
    assert prefix_hashes(range(32, 64), parent=whole[1]) == whole[2:]
    assert prefix_hashes(range(32, 64)) != whole[2:]


def test_parent_zero_is_a_parent() -> None:
    content = content_hashes(range(16))[0]
    chained = xxh3_64_intdigest(bytes(8) + content.to_bytes(8, "little"), 1337)
    assert prefix_hashes(range(16), parent=0) == [chained] != [content]


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_a_token_id_is_a_uint32(token: int) -> None:
    with pytest.raises(OverflowError):
        block_keys([token] * 16)


@pytest.mark.parametrize("size", [0, -16])
def test_a_block_has_tokens(size: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        content_hashes(range(16), size)
