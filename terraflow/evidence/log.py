"""Integration: committed leaves become tiles and a signed checkpoint.

1. Before anything is signed, each leaf's entry is read again and hashed again, and must give the hash that was
   stored when it was appended. A log with a leaf that does not is left as it was: LeafChanged.
2. Leaves are taken in order and without a gap; the tree continues the published one, whose root is checked against
   its own signed checkpoint when it is loaded.
3. One pass takes a bounded number of leaves, so that a long backlog is published in steps.
4. One tenant's damaged log does not keep the others from being integrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.evidence.checkpoint import open_checkpoint, sign_checkpoint
from terraflow.evidence.merkle import TileMissing, Tree, grow, leaf_hash, load, root
from terraflow.evidence.note import NoteInvalid
from terraflow.evidence.tiles import ENTRY_BYTES_MAX
from terraflow.ports.ledger import Leaf, Ledger, LedgerConflict, Tile

LEAVES_MAX = 8_192
"""Leaves a pass: about 20 ms of hashing and 10 MB of entries in memory, well inside a checkpoint's second."""


class LogDamaged(Exception):
    """What the database holds of a tenant's log contradicts what was signed or stored before."""

    def __init__(self, tenant: str, what: str) -> None:
        super().__init__(f"the log of tenant {tenant} is damaged: {what}")
        self.tenant = tenant


class LeafChanged(LogDamaged):
    """A leaf's entry no longer gives the hash that was stored with it, or a leaf is not where it must be."""

    def __init__(self, tenant: str, index: int) -> None:
        super().__init__(tenant, f"leaf {index} is not what was appended")
        self.index = index


class Integrated(msgspec.Struct, frozen=True):
    """A grown tree, the tiles to store, and its signed checkpoint."""

    tree: Tree
    tiles: Sequence[Tile]
    checkpoint: bytes


def integrate(tenant: str, tree: Tree, leaves: Iterable[Leaf], key: Ed25519PrivateKey) -> Integrated:
    """Add the leaves that follow the tree's last (rules 1 and 2) and sign the result. Raises LeafChanged."""
    grown, tiles = grow(tree, _rehashed(tenant, tree.size, leaves))
    return Integrated(grown, tiles, sign_checkpoint(tenant, grown, key))


def _rehashed(tenant: str, start: int, leaves: Iterable[Leaf]) -> list[bytes]:
    hashes = []
    for index, leaf in enumerate(leaves, start):
        found = leaf_hash(leaf.data)
        if found != leaf.leaf_hash or leaf.index != index or len(leaf.data) > ENTRY_BYTES_MAX:
            raise LeafChanged(tenant, index)
        hashes.append(found)
    return hashes


class Signed(msgspec.Struct, frozen=True):
    """A checkpoint that a pass has published."""

    tenant: str
    size: int
    checkpoint: bytes


class Integrator:
    """Publishes what was appended. One thread uses it; what it holds is a cache of the published trees."""

    def __init__(self, ledger: Ledger, key: Ed25519PrivateKey, leaves_max: int = LEAVES_MAX) -> None:
        self._ledger = ledger
        self._key = key
        self._leaves_max = leaves_max
        self._trees: dict[str, Tree] = {}

    def step(self, tenant: str) -> Signed | None:
        """Integrate up to `leaves_max` leaves of a tenant; None when there are none, or another was first.

        Raises LogDamaged, StoreUnavailable.
        """
        tree = self._trees.get(tenant) or load_published(self._ledger, tenant, self._key)
        self._trees[tenant] = tree
        committed = self._ledger.size(tenant)
        if committed < tree.size:
            raise LogDamaged(tenant, f"{committed} leaves are stored, {tree.size} were signed")
        if committed == tree.size:
            return None
        end = min(committed, tree.size + self._leaves_max)
        done = integrate(tenant, tree, self._ledger.leaves(tenant, tree.size, end), self._key)
        if done.tree.size != end:
            raise LeafChanged(tenant, done.tree.size)
        del self._trees[tenant]
        try:
            self._ledger.publish(tenant, end, done.tiles, done.checkpoint)
        except LedgerConflict:
            return None
        self._trees[tenant] = done.tree
        return Signed(tenant, end, done.checkpoint)

    def run_once(self) -> tuple[list[Signed], list[LogDamaged]]:
        """One step for every tenant (rule 4): what was published, and the logs that could not be."""
        signed: list[Signed] = []
        damaged: list[LogDamaged] = []
        for tenant in self._ledger.tenants():
            try:
                done = self.step(tenant)
            except LogDamaged as damage:
                damaged.append(damage)
            else:
                signed += [done] if done is not None else []
        return signed, damaged


def load_published(ledger: Ledger, tenant: str, key: Ed25519PrivateKey) -> Tree:
    """A tenant's published tree, its root checked against its signed checkpoint. Raises LogDamaged."""
    note = ledger.checkpoint(tenant)
    if note is None:
        return Tree()
    try:
        claimed = open_checkpoint(note, tenant, key.public_key())
        tree = load(claimed.size, lambda level, index: ledger.tile(tenant, level, index))
    except (NoteInvalid, TileMissing) as trouble:
        raise LogDamaged(tenant, str(trouble)) from trouble
    if root(tree) != claimed.root:
        raise LogDamaged(tenant, "its tiles do not give the root that was signed")
    return tree
