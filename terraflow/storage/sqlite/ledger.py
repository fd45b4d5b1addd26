"""The ledger port over the store's file: leaves as committed, tiles, signed checkpoints.

1. Reads are on a connection of their own and see committed rows only.
2. `publish` rides with the plane's group commit, so that it neither waits for the write lock nor takes it away
   from requests; a tool without a plane gives it a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from terraflow.ports.ledger import Leaf, LedgerConflict, Tile
from terraflow.storage.sqlite.connection import Sibling
from terraflow.storage.sqlite.keys import Write
from terraflow.storage.sqlite.log import INDEX_MASK, positions
from terraflow.storage.sqlite.queries import SQL

T = TypeVar("T")

CHECKPOINTS_KEPT = 1_024
LEAVES_A_CHECKPOINT = 4_096
CHECKPOINTS_A_READ = 256


class Transact(Protocol):
    """Runs statements as one durable transaction and blocks until it is. Raises what the statements raise."""

    def __call__(self, run: Callable[[Write], T], /) -> T:
        """What `run` returned."""
        ...


class SqliteLedger:
    """A `Ledger`. Every verb blocks and may be called from any thread but the event loop's."""

    def __init__(self, sibling: Sibling, transact: Transact) -> None:
        self._rows = sibling.rows
        self._transact = transact

    def tenants(self) -> Sequence[str]:
        """See the port."""
        return [tenant for tenant, no in self._rows(SQL["tenants"]) if self._count(no)]

    def size(self, tenant: str) -> int:
        """See the port."""
        no = self._no(tenant)
        return 0 if no is None else self._count(no)

    def leaves(self, tenant: str, start: int, end: int) -> Sequence[Leaf]:
        """See the port."""
        no = self._no(tenant)
        if no is None or end <= start:
            return []
        rows = self._rows(SQL["leaves"], positions(no, start, end))
        return [Leaf(position & INDEX_MASK, data, leaf_hash) for position, data, leaf_hash in rows]

    def tile(self, tenant: str, level: int, index: int) -> bytes | None:
        """See the port."""
        no = self._no(tenant)
        rows = [] if no is None else self._rows(SQL["find_tile"], (no, level, index))
        return rows[0][0] if rows else None

    def checkpoint(self, tenant: str) -> bytes | None:
        """See the port."""
        no = self._no(tenant)
        rows = [] if no is None else self._rows(SQL["last_checkpoint"], (no,))
        return rows[0][0] if rows else None

    def checkpoints(self, tenant: str) -> Iterator[bytes]:
        """See the port. Read in portions, so that a long history is never whole in memory."""
        no = self._no(tenant)
        after = -1
        while no is not None:
            rows = self._rows(SQL["checkpoints"], (no, after, CHECKPOINTS_A_READ))
            yield from (note for note, _size in rows)
            if len(rows) < CHECKPOINTS_A_READ:
                return
            after = rows[-1][1]

    def publish(self, tenant: str, size: int, tiles: Sequence[Tile], checkpoint: bytes) -> None:
        """See the port. Raises LedgerConflict also where a tile would not continue the stored one, or where there
        are fewer than `size` leaves."""
        self._transact(lambda write: _publish(write, tenant, size, tiles, checkpoint))

    def _no(self, tenant: str) -> int | None:
        rows = self._rows(SQL["tenant_no"], (tenant,))
        return rows[0][0] if rows else None

    def _count(self, no: int) -> int:
        ((last,),) = self._rows(SQL["last_position"], positions(no))
        return 0 if last is None else int(last & INDEX_MASK) + 1


def _publish(write: Write, tenant: str, size: int, tiles: Sequence[Tile], checkpoint: bytes) -> None:
    row = write("tenant_no", (tenant,)).fetchone()
    if row is None:
        raise LedgerConflict("the tenant has no log")
    (no,) = row
    last = write("last_checkpoint", (no,)).fetchone()
    if last is not None and last[1] >= size:
        raise LedgerConflict("a checkpoint of this size or a greater one is published")
    (position,) = write("last_position", positions(no)).fetchone()
    if position is None or (position & INDEX_MASK) + 1 < size:
        raise LedgerConflict("the log has fewer leaves")
    for tile in tiles:
        stored = write("find_tile", (no, tile.level, tile.index)).fetchone()
        if stored is not None and not tile.hashes.startswith(stored[0]):
            raise LedgerConflict("the tile does not continue the stored one")
    for tile in tiles:
        write("write_tile", (no, tile.level, tile.index, tile.hashes))
    write("add_checkpoint", (no, size, checkpoint))
    _thin(write, no)


def _thin(write: Write, no: int) -> None:
    """Keep the newest checkpoints, and of older ones the first in each so many leaves: a quiet log that is signed
    four times a second would otherwise grow by more signatures than records."""
    aged = write("aged_checkpoint", (no, CHECKPOINTS_KEPT)).fetchone()
    if aged is None or aged[1] is None:
        return
    size, before = aged
    if size // LEAVES_A_CHECKPOINT == before // LEAVES_A_CHECKPOINT:
        write("drop_checkpoint", (no, size))
