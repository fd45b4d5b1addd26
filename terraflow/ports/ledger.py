"""The append-only log of each tenant, as its integrator, its reader and its export see it.

The store appends the leaves (ports.store); this port reads them back, keeps the Merkle tree's tiles and the signed
checkpoints, and never changes a leaf.

1. A tenant's leaves MUST be numbered 0, 1, 2, … without a gap, in commit order. A leaf that was ever returned
   MUST NOT change, and its index MUST NOT be given to another.
2. Only committed leaves MUST be returned: what a power cut could still take away is not there yet.
3. `publish` MUST be one durable transaction: tiles, checkpoint and tree size together or not at all. It MUST
   refuse a checkpoint whose size is not above the published one's (LedgerConflict), so that two integrators
   cannot both win.
4. A tile row MAY be written again only with more hashes after the ones it had: a tile only grows, to 256 hashes.
5. A tenant that has no log has size 0, no checkpoint and no tiles; asking for it is no error.
6. Verbs block; they are called from a thread that may, never from the event loop. They MUST be safe from any
   thread.
7. The database failing MUST raise `StoreUnavailable`.

Sizes and indexes count leaves. Hashes are 32 bytes, SHA-256 as RFC 6962 section 2.1 uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec


class LedgerConflict(Exception):
    """Another integrator published at this size or a greater one; nothing was written."""


class Leaf(msgspec.Struct, frozen=True):
    """One committed leaf: its entry as appended, and the leaf hash that was stored beside it."""

    index: int
    data: bytes
    leaf_hash: bytes


class Tile(msgspec.Struct, frozen=True):
    """The hashes of one tile so far: 1 to 256 of 32 bytes, joined. `level` and `index` as in C2SP tlog-tiles."""

    level: int
    index: int
    hashes: bytes


class Ledger(Protocol):
    """One transparency log a tenant."""

    def tenants(self) -> Sequence[str]:
        """Every tenant with at least one leaf."""
        ...

    def size(self, tenant: str) -> int:
        """How many leaves are committed; at least the size of the latest checkpoint."""
        ...

    def leaves(self, tenant: str, start: int, end: int) -> Sequence[Leaf]:
        """The leaves start <= index < end, in order. MUST read them from where a restart would read them."""
        ...

    def tile(self, tenant: str, level: int, index: int) -> bytes | None:
        """The hashes of a tile, as wide as published last; None if there is none."""
        ...

    def checkpoint(self, tenant: str) -> bytes | None:
        """The signed note published last."""
        ...

    def checkpoints(self, tenant: str) -> Iterator[bytes]:
        """Every signed note ever published, in order of size."""
        ...

    def publish(self, tenant: str, size: int, tiles: Sequence[Tile], checkpoint: bytes) -> None:
        """Make the tiles and the signed note for a tree of `size` leaves the published ones."""
        ...
