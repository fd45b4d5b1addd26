"""Uploaded files, in pieces that a transaction writes at once without keeping the loop for long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from terraflow.core.types import MICRO, Instant
from terraflow.ports.batches import BatchFile, Page
from terraflow.ports.store import StoreConflict
from terraflow.storage.sqlite.batch_room import BatchRoom
from terraflow.storage.sqlite.committer import Committer
from terraflow.storage.sqlite.connection import Database, Row
from terraflow.storage.sqlite.seal import Seal

PIECE_BYTES = 256 * 1024
"""A millisecond of sealing and writing."""
BEGUN_S = 3_600
"""How long a file may take to be kept: what a crash or a full disk left of one is erased after this, and not with the
files, whose time is a week and whose room is bounded."""


FIRST, LAST = (-1, ""), (1 << 62, "~")
"""Before and behind everything by time and id."""


class BatchFiles:
    """The verbs of `ports.batches.BatchStore` about files. `erase` removes what has expired from every file."""

    def __init__(
        self, database: Database, committer: Committer, seal: Seal, erase: Callable[[], Awaitable[object]]
    ) -> None:
        self._database = database
        self._committer = committer
        self._seal = seal
        self._erase = erase
        self._room = BatchRoom(database)

    async def keep_file(self, file: BatchFile, data: bytes, bytes_max: int) -> bool:
        """See the port."""
        name = self._seal.close(file.name.encode(), _bound("name", file.tenant, file.id, 0))
        owner = (file.id, file.tenant, file.application)
        row = (*owner, self._seal.sealed, name, file.size_bytes, file.created_at, file.created_at + BEGUN_S * MICRO)
        with self._room.kept(file.id):
            if not await self._committer.submit(partial(self._begin, file.id, row, len(data), bytes_max)):
                return False
            starts = range(0, len(data), PIECE_BYTES)
            for no, start in enumerate(starts):
                piece = data[start : start + PIECE_BYTES]
                closed = self._seal.close(piece, _bound("piece", file.tenant, file.id, no))
                await self._committer.submit(partial(self._once, "add_batch_file_part", (no, closed, file.id)))
                self._room.came(file.id, len(piece))
        whole = (file.expires_at, file.id, len(starts))
        await self._committer.submit(partial(self._once, "complete_batch_file", whole))
        return True

    async def find_file(self, tenant: str, application: str, file_id: str, now: Instant) -> BatchFile | None:
        """See the port."""
        rows = self._database.read("find_batch_file", (file_id, tenant, application, now))
        return self._file(tenant, application, (file_id, *rows[0])) if rows else None

    async def list_files(self, tenant: str, application: str, page: Page, now: Instant) -> Sequence[BatchFile]:
        """See the port."""
        name = "files_newest_first" if page.newest_first else "files_oldest_first"
        rows = self._database.read(name, (tenant, application, *place(page), now, page.limit))
        return [self._file(tenant, application, row) for row in rows]

    def _file(self, tenant: str, application: str, row: Row) -> BatchFile:
        file_id, sealed, raw_name, size, created_at, expires_at = row
        name = self._seal.open(bool(sealed), raw_name, _bound("name", tenant, file_id, 0))
        return BatchFile(
            id=file_id,
            tenant=tenant,
            application=application,
            name="" if name is None else name.decode(),
            size_bytes=size,
            created_at=created_at,
            expires_at=expires_at,
        )

    async def read_piece(self, file: BatchFile, no: int) -> bytes | None:
        """See the port."""
        rows = self._database.read("batch_file_part", (file.id, file.tenant, no))
        if not rows:
            return None
        sealed, data = rows[0]
        return self._seal.open(bool(sealed), data, _bound("piece", file.tenant, file.id, no))

    async def drop_file(self, tenant: str, application: str, file_id: str, now: Instant) -> bool:
        """See the port."""
        found = await self._committer.submit(
            partial(self._run, "expire_batch_file", (file_id, tenant, application, now))
        )
        if found:
            await self._erase()
        return bool(found)

    def _begin(self, file_id: str, row: tuple[object, ...], size: int, bytes_max: int) -> bool:
        if not self._room.take(file_id, size, bytes_max):
            return False
        self._database.write("add_batch_file", row)
        return True

    def _run(self, name: str, parameters: tuple[object, ...]) -> int:
        return self._database.write(name, parameters).rowcount

    def _once(self, name: str, parameters: tuple[object, ...]) -> None:
        if self._run(name, parameters) != 1:
            raise StoreConflict(name)


def place(page: Page) -> tuple[int, str]:
    """Behind what a page begins."""
    return page.behind or (LAST if page.newest_first else FIRST)


def _bound(what: str, tenant: str, file_id: str, no: int) -> bytes:
    return msgspec.json.encode(["terraflow batch file 1", what, tenant, file_id, no])
