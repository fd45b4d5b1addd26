"""The ledger's port on a small SQLite schema of its own: what evidence is tested on, whatever the plane uses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from terraflow.evidence.merkle import leaf_hash
from terraflow.ports.ledger import Leaf, LedgerConflict, Tile

SCHEMA = """
CREATE TABLE IF NOT EXISTS leaf (tenant TEXT, idx INTEGER, data BLOB, hash BLOB, PRIMARY KEY (tenant, idx));
CREATE TABLE IF NOT EXISTS tile (
    tenant TEXT, level INTEGER, idx INTEGER, hashes BLOB, PRIMARY KEY (tenant, level, idx));
CREATE TABLE IF NOT EXISTS checkpoint (tenant TEXT, size INTEGER, note BLOB, PRIMARY KEY (tenant, size));
"""


class SqliteLedger:
    """`append` stands in for the store; the rest is the port."""

    def __init__(self, path: str | Path = ":memory:") -> None:
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.executescript(SCHEMA)

    def append(self, tenant: str, entries: Iterable[bytes]) -> None:
        start = self.size(tenant)
        rows = ((tenant, index, data, leaf_hash(data)) for index, data in enumerate(entries, start))
        with self.db:
            self.db.executemany("INSERT INTO leaf VALUES (?, ?, ?, ?)", rows)

    def tenants(self) -> Sequence[str]:
        return [tenant for (tenant,) in self.db.execute("SELECT DISTINCT tenant FROM leaf ORDER BY tenant")]

    def size(self, tenant: str) -> int:
        (size,) = self.db.execute("SELECT coalesce(max(idx) + 1, 0) FROM leaf WHERE tenant = ?", (tenant,)).fetchone()
        return int(size)

    def leaves(self, tenant: str, start: int, end: int) -> Sequence[Leaf]:
        found = self.db.execute(
            "SELECT idx, data, hash FROM leaf WHERE tenant = ? AND idx >= ? AND idx < ? ORDER BY idx",
            (tenant, start, end),
        )
        return [Leaf(*row) for row in found]

    def tile(self, tenant: str, level: int, index: int) -> bytes | None:
        found = self.db.execute(
            "SELECT hashes FROM tile WHERE tenant = ? AND level = ? AND idx = ?", (tenant, level, index)
        ).fetchone()
        return found[0] if found else None

    def checkpoint(self, tenant: str) -> bytes | None:
        found = self.db.execute(
            "SELECT note FROM checkpoint WHERE tenant = ? ORDER BY size DESC LIMIT 1", (tenant,)
        ).fetchone()
        return found[0] if found else None

    def checkpoints(self, tenant: str) -> Iterator[bytes]:
        for (note,) in self.db.execute("SELECT note FROM checkpoint WHERE tenant = ? ORDER BY size", (tenant,)):
            yield note

    def publish(self, tenant: str, size: int, tiles: Sequence[Tile], checkpoint: bytes) -> None:
        with self.db:
            (published,) = self.db.execute(
                "SELECT coalesce(max(size), 0) FROM checkpoint WHERE tenant = ?", (tenant,)
            ).fetchone()
            if size <= published:
                raise LedgerConflict
            self.db.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (tenant, size, checkpoint))
            self.db.executemany(
                "INSERT OR REPLACE INTO tile VALUES (?, ?, ?, ?)",
                [(tenant, tile.level, tile.index, tile.hashes) for tile in tiles],
            )
