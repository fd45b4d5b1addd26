"""The tree against RFC 6962's definition, known vectors, and the verifier's own reading of it."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.evidence import merkle
from terraflow.evidence.merkle import TILE_WIDTH, TileMissing, Tree, grow, leaf_hash, load, node_hash, root
from terraflow.evidence.proof import inclusion_path, root_at
from terraflow.evidence.tiles import tiles_of
from terraflow.verifier import tree as verifier

CT_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""The tree of the certificate-transparency project's merkle_tree_test.cc: leaves, and the root at each size."""

HASHES = [sha256(b"leaf %d" % number).digest() for number in range(70_000)]


def by_definition(hashes: list[bytes]) -> bytes:
    """MTH of RFC 6962 section 2.1, word for word."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    return node_hash(by_definition(hashes[:split]), by_definition(hashes[split:]))


class Tiles(dict[tuple[int, int], bytes]):
    """Published tiles of a tree grown in the given steps."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.tree = Tree()
        for size in sizes:
            self.tree, tiles = grow(self.tree, HASHES[self.tree.size : size])
            for tile in tiles:
                before = self.get((tile.level, tile.index), b"")
                assert tile.hashes.startswith(before) and len(tile.hashes) > len(before)
                self[tile.level, tile.index] = tile.hashes

    def read(self, level: int, index: int) -> bytes | None:
        return self.get((level, index))


BIG = Tiles([70_000])


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_are_those_of_the_certificate_transparency_vectors(size: int) -> None:
    hashes = [leaf_hash(bytes.fromhex(leaf)) for leaf in CT_LEAVES[:size]]
    assert root(grow(Tree(), hashes)[0]).hex() == CT_ROOTS[size - 1]


def test_the_empty_tree_has_the_hash_of_nothing() -> None:
    assert root(Tree()) == sha256(b"").digest() == verifier.root_at(0, [])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 700), min_size=1, max_size=6).map(sorted))
def test_growing_in_steps_gives_the_tree_that_the_definition_gives(sizes: list[int]) -> None:
    tiles = Tiles(sizes)
    assert root(tiles.tree) == by_definition(HASHES[: sizes[-1]])
    assert load(sizes[-1], tiles.read) == tiles.tree
    for size in sizes:
        assert root_at(size, tiles.read) == by_definition(HASHES[:size])


def test_the_tiles_of_70_000_leaves_are_those_of_the_specifications_example() -> None:
    widths = {(level, index): width for level, index, width in tiles_of(70_000)}
    assert {at: len(hashes) // 32 for at, hashes in BIG.items()} == widths
    assert sum(1 for (level, _), width in widths.items() if level == 0 and width == TILE_WIDTH) == 273
    assert widths[0, 273] == 112 and widths[1, 0] == 256 and widths[1, 1] == 17 and widths[2, 0] == 1
    assert list(tiles_of(256)) == [(0, 0, 256), (1, 0, 1)]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 70_000), st.data())
def test_every_leaf_has_a_path_that_the_verifier_follows_to_the_root(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    path = inclusion_path(index, size, BIG.read)
    assert verifier.root_of_path(HASHES[index], index, size, path) == root_at(size, BIG.read)
    for wrong in (path[:-1], [*path, HASHES[0]], path[1:] + path[:1]):
        if wrong != path:
            assert verifier.root_of_path(HASHES[index], index, size, wrong) != root_at(size, BIG.read)
    assert verifier.root_of_path(HASHES[index], index + 1, size, path) != root_at(size, BIG.read)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70_000))
def test_the_verifier_computes_the_same_roots_by_its_own_arithmetic(size: int) -> None:
    leaves = b"".join(HASHES)
    roots = b"".join(verifier.perfect_root(leaves[at : at + 8192]) for at in range(0, len(leaves) - 8191, 8192))
    assert verifier.root_at(size, [leaves, *verifier.levels_above(roots)]) == root_at(size, BIG.read)


def test_a_tile_that_is_missing_or_narrow_is_an_error_and_not_another_root() -> None:
    for damage in (None, BIG[0, 273][:-32]):
        tiles = Tiles([70_000])
        tiles[0, 273] = damage or b""
        for ask in (partial(load, 70_000), partial(inclusion_path, 0, 70_000)):
            with pytest.raises(TileMissing):
                ask(tiles.read)
    with pytest.raises(ValueError):
        inclusion_path(5, 5, BIG.read)


def test_a_leaf_and_a_node_never_hash_alike() -> None:
    left, right = HASHES[:2]
    assert merkle.leaf_hash(left + right) != node_hash(left, right)
