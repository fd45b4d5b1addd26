"""Batches and their items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import msgspec

from terraflow.core.types import Instant
from terraflow.ports.batches import Batch, BatchItem, BatchStatus, Page, Room
from terraflow.ports.store import StoreConflict
from terraflow.storage.sqlite.answers import Answers
from terraflow.storage.sqlite.batch_files import LAST, BatchFiles, place
from terraflow.storage.sqlite.committer import Committer
from terraflow.storage.sqlite.connection import Database, Row
from terraflow.storage.sqlite.erasure import SOME
from terraflow.storage.sqlite.seal import Seal

ITEMS_AT_ONCE = 64
"""Items that a transaction writes, or a megabyte of them."""
BYTES_AT_ONCE = 1024 * 1024
_COLUMNS = tuple(name for name in Batch.__struct_fields__ if name not in ("sensitive_types", "metadata"))


class SqliteBatches(BatchFiles):
    """A `BatchStore` over the plane's database."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        seal: Seal,
        answers: Answers,
        erase: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(database, committer, seal, erase)
        self._answers = answers

    async def open_batch(self, batch: Batch, items: Sequence[bytes], room: Room) -> Batch | None:
        """See the port."""
        size = sum(map(len, items))
        with self._room.kept(batch.id):
            if not await self._committer.submit(partial(self._open, batch, len(items), size, room)):
                return None
            numbered = enumerate(items)
            while some := _some(numbered):
                rows = [
                    (batch.id, no, self._seal.sealed, self._seal.close(data, _bound("request", batch, no)))
                    for no, data in some
                ]
                await self._committer.submit(partial(self._database.many, "add_batch_item", rows))
                self._room.came(batch.id, sum(len(data) for _, data in some))
        await self._committer.submit(partial(self._run, "start_batch", (batch.created_at, batch.id)))
        (row,) = self._database.read("find_batch", (batch.id, batch.tenant, batch.application, batch.created_at))
        return self._batch(row)

    def _open(self, batch: Batch, total: int, size: int, room: Room) -> bool:
        ((others,),) = self._database.write("count_open_batches", (batch.tenant,)).fetchall()
        if others >= room.open_max or not self._room.take(batch.id, size, room.bytes_max):
            return False
        metadata = self._seal.close(batch.metadata, _bound("metadata", batch, 0)) if batch.metadata else b""
        types = ",".join(batch.sensitive_types)
        declared = (batch.endpoint, batch.input_file, batch.workload, batch.data_class, types, batch.window)
        owner = (batch.id, batch.tenant, batch.application, batch.key_id)
        stands = (batch.created_at, batch.expires_at, BatchStatus.VALIDATING.value, total)
        self._database.write("add_batch", (*owner, *declared, self._seal.sealed, metadata, *stands))
        return True

    async def find_batch(self, tenant: str, application: str, batch_id: str, now: Instant) -> Batch | None:
        """See the port."""
        rows = self._database.read("find_batch", (batch_id, tenant, application, now))
        return self._batch(rows[0]) if rows else None

    async def list_batches(
        self, tenant: str, application: str, after: Batch | None, limit: int, now: Instant
    ) -> Sequence[Batch]:
        """See the port."""
        behind = LAST if after is None else (after.created_at, after.id)
        rows = self._database.read("batches_of_application", (tenant, application, *behind, now, limit))
        return [self._batch(row) for row in rows]

    async def list_results(self, tenant: str, application: str, page: Page, now: Instant) -> Sequence[Batch]:
        """See the port."""
        name = "results_newest_first" if page.newest_first else "results_oldest_first"
        rows = self._database.read(name, (tenant, application, *place(page), now, page.limit))
        return [self._batch(row) for row in rows]

    async def open_batches(self) -> Sequence[Batch]:
        """See the port."""
        return [self._batch(row) for row in self._database.read("open_batches")]

    async def cancel_batch(self, batch: Batch, now: Instant) -> None:
        """See the port."""
        await self._committer.submit(partial(self._run, "cancel_batch", (now, batch.id)))

    async def finalize_batch(self, batch: Batch, now: Instant) -> None:
        """See the port."""
        await self._committer.submit(partial(self._run, "finalize_batch", (now, batch.id)))

    async def fail_batch(self, batch: Batch) -> None:
        """See the port."""
        await self._committer.submit(partial(self._run, "fail_batch", (batch.id,)))

    async def end_batch(self, batch: Batch, status: BatchStatus, now: Instant, erase_at: Instant) -> None:
        """See the port."""
        parameters = (status.value, now, erase_at, batch.id)
        await self._committer.submit(partial(self._once, "end_batch", parameters))

    async def drop_items(self, batch: Batch) -> bool:
        """See the port."""
        return await self._committer.submit(partial(self._run, "drop_batch_items", (batch.id, SOME))) == SOME

    async def take_item(self, batch: Batch, behind: int, request_id: str) -> BatchItem | None:
        """See the port."""

        def take() -> Row | None:
            row: Row | None = self._database.write("take_batch_item", (request_id, batch.id, behind)).fetchone()
            return row or self._database.write("take_batch_item", (request_id, batch.id, -1)).fetchone()

        row = await self._committer.submit(take)
        return None if row is None else self._item(batch, row)

    async def return_item(self, batch: Batch, no: int, request_id: str) -> None:
        """See the port."""
        await self._committer.submit(partial(self._once, "return_batch_item", (batch.id, no, request_id)))

    async def end_item(
        self, batch: Batch, no: int, request_id: str, *, completed: bool, line: bytes, key: str, now: Instant
    ) -> None:
        """See the port."""
        sealed = self._seal.close(line, _bound("result", batch, no))
        state = "completed" if completed else "failed"

        def end() -> None:
            self._once("end_batch_item", (state, self._seal.sealed, sealed, now, batch.id, no, request_id))
            self._count(batch, completed, len(line))
            self._run("drop_answer_of_item", (batch.tenant, request_id))
            self._run("drop_claim_of_item", (batch.tenant, batch.application, key, request_id))

        await self._committer.submit(end)

    async def end_queued(self, batch: Batch, lines: Sequence[tuple[int, bytes]], now: Instant) -> None:
        """See the port."""

        def end() -> None:
            # A verb that refuses has written nothing.
            if not all(self._database.write("queued_batch_item", (batch.id, no)).fetchone() for no, _ in lines):
                raise StoreConflict("end_queued_batch_item")
            for no, line in lines:
                data = self._seal.close(line, _bound("result", batch, no))
                self._once("end_queued_batch_item", (self._seal.sealed, data, now, batch.id, no))
                self._count(batch, False, len(line))

        await self._committer.submit(end)

    async def queued_items(self, batch: Batch, limit: int) -> Sequence[BatchItem]:
        """See the port."""
        rows = self._database.read("batch_items_in", (batch.id, "queued", limit))
        return [self._item(batch, row) for row in rows]

    async def running_items(self, batch: Batch) -> Sequence[BatchItem]:
        """See the port."""
        rows = self._database.read("batch_items_in", (batch.id, "running", -1))
        return [self._item(batch, row) for row in rows]

    async def answer_of(self, tenant: str, request_id: str, now: Instant) -> bytes | None:
        """See the port."""
        return await self._committer.submit(partial(self._answers.of_request, tenant, request_id, now))

    async def results(self, batch: Batch, *, completed: bool, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """See the port."""
        state = "completed" if completed else "failed"
        rows = self._database.read("batch_results", (batch.id, state, after, limit))
        return [
            (no, self._seal.open(bool(sealed), data, _bound("result", batch, no)) or b"") for no, sealed, data in rows
        ]

    def _count(self, batch: Batch, completed: bool, size: int) -> None:
        counts = (1, 0, size, 0) if completed else (0, 1, 0, size)
        self._run("count_batch_item", (*counts, batch.id))

    def _item(self, batch: Batch, row: Row) -> BatchItem:
        no, request_id, sealed, data = row
        return BatchItem(no, request_id, self._seal.open(bool(sealed), data, _bound("request", batch, no)))

    def _batch(self, row: Row) -> Batch:
        types, window, sealed, raw = row[8:12]
        named = dict(zip(_COLUMNS, (*row[:8], window, *row[12:]), strict=True))
        named["status"] = BatchStatus(named["status"])
        batch = Batch(**named, sensitive_types=tuple(types.split(",")) if types else (), metadata=b"")
        metadata = self._seal.open(bool(sealed), raw, _bound("metadata", batch, 0)) if raw else None
        return msgspec.structs.replace(batch, metadata=metadata or b"")


def _some(numbered: Iterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The next items, as many as a transaction takes."""
    some: list[tuple[int, bytes]] = []
    size = 0
    for item in islice(numbered, ITEMS_AT_ONCE):
        some.append(item)
        size += len(item[1])
        if size >= BYTES_AT_ONCE:
            break
    return some


def _bound(what: str, batch: Batch, no: int) -> bytes:
    return msgspec.json.encode(["terraflow batch 1", what, batch.tenant, batch.id, no])
