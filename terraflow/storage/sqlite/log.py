"""The leaves of every tenant's log.

1. A leaf's `position` is the tenant's number << 40 | its index: 2^40 leaves a tenant, 2^23 tenants.
2. The next index is kept in memory between transactions and read again whenever a transaction fails.
3. Between its intent and its outcome a request stands in `open_request`, so that a restart finds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from terraflow.evidence.tiles import ENTRY_BYTES_MAX
from terraflow.ports.store import Entry, RecordedEntry
from terraflow.storage.sqlite.connection import Database

INDEX_BITS = 40
INDEX_MASK = (1 << INDEX_BITS) - 1
TENANTS_MAX = 10_000
"""Tenants whose next index is kept in memory."""

INTENT = "intent"
OUTCOME = "outcome"


def positions(tenant_no: int, start: int = 0, end: int = 1 << INDEX_BITS) -> tuple[int, int]:
    """The first and the last position of the indexes start <= index < end."""
    return tenant_no << INDEX_BITS | start, (tenant_no << INDEX_BITS) + end - 1


class Log:
    """Appending, inside a transaction, and reading one request's leaves."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next: dict[str, int] = {}

    def forget(self) -> None:
        """Read the next indexes again before using them."""
        self._next.clear()

    def append(self, entries: Sequence[Entry]) -> None:
        """Append leaves in the order given, and keep account of which requests are open.

        Raises ValueError for one that is too long, sqlite3.IntegrityError for a second intent of an open request.
        """
        write = self._database.write
        opened: dict[str, int] = {}
        for entry in entries:
            if len(entry.data) > ENTRY_BYTES_MAX:
                raise ValueError("a leaf has at most 65 535 bytes")
            position = self._next.get(entry.tenant)
            if position is None:
                position = self._first_free(entry.tenant)
            data = entry.data
            leaf_hash = hashlib.sha256(b"\x00" + data).digest()
            write("append_leaf", (position, entry.request_id, entry.application, entry.kind, data, leaf_hash))
            self._next[entry.tenant] = position + 1
            if entry.kind == INTENT:
                opened[entry.request_id] = position
            elif entry.kind == OUTCOME and opened.pop(entry.request_id, None) is None:
                write("close_request", (entry.request_id,))
        for request_id, position in opened.items():
            write("open_request", (request_id, position))

    def append_missing(self, entries: Sequence[Entry]) -> None:
        """Append those that the log does not hold yet, told by request and kind."""
        write = self._database.write
        self.append([e for e in entries if write("has_leaf", (e.request_id, e.kind)).fetchone() is None])

    def of_request(self, tenant: str, application: str, request_id: str) -> list[RecordedEntry]:
        """The leaves of one request of this application, in order."""
        rows = self._database.read("leaves_of_request", (request_id, application, tenant))
        return [RecordedEntry(position & INDEX_MASK, kind, data) for position, kind, data in rows]

    def _first_free(self, tenant: str) -> int:
        if len(self._next) >= TENANTS_MAX:
            self._next.clear()
        write = self._database.write
        row = write("tenant_no", (tenant,)).fetchone()
        no: int = row[0] if row is not None else self._database.insert("add_tenant", (tenant,))
        (last,) = write("last_position", positions(no)).fetchone()
        return int(no << INDEX_BITS if last is None else last + 1)
