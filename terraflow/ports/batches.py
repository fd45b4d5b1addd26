"""Durable state of batches, as verbs: the files that callers upload, the batches made of them, their items.

1. The rules of `ports.store` hold here as well: a verb that returns is durable, and all or nothing except where it says
   otherwise; what is not the caller's does not exist.
2. An item is `queued`, then `running` under one request's id, then `completed` or `failed`. It ends once: ending it
   under another request's id, or twice, raises StoreConflict and has no effect.
3. What a caller wrote and what it was answered (bodies, names, metadata, `custom_id`s) is sealed as stored answers are,
   and gone when it is erased.
4. One process takes items; no verb guards against another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from terraflow.core.types import Instant


class BatchStatus(StrEnum):
    """Where a batch is. The words are those of OpenAI's batches."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


ENDED = frozenset((BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED))


class BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file, without its bytes."""

    id: str
    tenant: str
    application: str
    name: str
    size_bytes: int
    created_at: Instant
    expires_at: Instant


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it stands.

    `workload`, `data_class` and `sensitive_types` are what its creator declared for every item; `metadata` is the
    caller's JSON object, empty when there was none. An item with a result below 400 is `completed`, any other that has
    ended `failed`; the two sizes are those of their lines. `erase_at` is known once it has ended.
    """

    id: str
    tenant: str
    application: str
    key_id: str
    endpoint: str
    input_file: str | None
    workload: str | None
    data_class: str | None
    sensitive_types: tuple[str, ...]
    window: str
    metadata: bytes
    created_at: Instant
    expires_at: Instant
    status: BatchStatus = BatchStatus.VALIDATING
    in_progress_at: Instant | None = None
    cancelling_at: Instant | None = None
    finalizing_at: Instant | None = None
    ended_at: Instant | None = None
    erase_at: Instant | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    output_bytes: int = 0
    error_bytes: int = 0


class BatchItem(msgspec.Struct, frozen=True):
    """An item that has not ended. `request_id` is the request that it runs as, None while it is queued; `data` is None
    when what is stored does not open any more."""

    no: int
    request_id: str | None
    data: bytes | None


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What may be stored: batches of a tenant that have not ended, and bytes of all files and items."""

    open_max: int
    bytes_max: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list in the order of times and ids: at most `limit` behind that place, None for the beginning."""

    behind: tuple[Instant, str] | None
    newest_first: bool
    limit: int


class BatchStore(Protocol):
    """What the plane asks of its database about batches."""

    async def keep_file(self, file: BatchFile, data: bytes, bytes_max: int) -> bool:
        """Keep a file, a piece a transaction; it is found once all of it is there, and what is left of one that never
        was is erased before long. False, and nothing kept, where all files and items together would have more than
        `bytes_max`. Raises StoreConflict where some of it was erased before all of it was there."""
        ...

    async def find_file(self, tenant: str, application: str, file_id: str, now: Instant) -> BatchFile | None:
        """The file, unless it has expired."""
        ...

    async def list_files(self, tenant: str, application: str, page: Page, now: Instant) -> Sequence[BatchFile]:
        """An application's uploaded files by the time at which each was created, those behind `page.behind`."""
        ...

    async def list_results(self, tenant: str, application: str, page: Page, now: Instant) -> Sequence[Batch]:
        """An application's batches that have ended with results, by the time at which each ended, from the one at
        `page.behind` on."""
        ...

    async def read_piece(self, file: BatchFile, no: int) -> bytes | None:
        """A piece of a file, numbered from 0; None after the last one, and for what does not open."""
        ...

    async def drop_file(self, tenant: str, application: str, file_id: str, now: Instant) -> bool:
        """Erase a file; False when there is none."""
        ...

    async def open_batch(self, batch: Batch, items: Sequence[bytes], room: Room) -> Batch | None:
        """Keep a batch and its items, some a transaction, then let it be in progress. None, and nothing kept, where
        there is no room."""
        ...

    async def find_batch(self, tenant: str, application: str, batch_id: str, now: Instant) -> Batch | None:
        """The batch, unless its results' time is over."""
        ...

    async def list_batches(
        self, tenant: str, application: str, after: Batch | None, limit: int, now: Instant
    ) -> Sequence[Batch]:
        """An application's batches, newest first, those behind `after`."""
        ...

    async def open_batches(self) -> Sequence[Batch]:
        """Every batch that has not ended, oldest first."""
        ...

    async def cancel_batch(self, batch: Batch, now: Instant) -> None:
        """Let a batch in progress be cancelling; any other stays what it is."""
        ...

    async def finalize_batch(self, batch: Batch, now: Instant) -> None:
        """Let a batch in progress be finalizing; any other stays what it is."""
        ...

    async def fail_batch(self, batch: Batch) -> None:
        """Let a batch that was never whole be failed: it has not ended, but takes no item any more."""
        ...

    async def end_batch(self, batch: Batch, status: BatchStatus, now: Instant, erase_at: Instant) -> None:
        """Its last status. Raises StoreConflict when it has ended."""
        ...

    async def drop_items(self, batch: Batch) -> bool:
        """Erase some of the items of a batch that was never whole; False when there are no more."""
        ...

    async def take_item(self, batch: Batch, behind: int, request_id: str) -> BatchItem | None:
        """The next queued item behind number `behind`, or the first where none is, which runs as this request from now
        on; None when none is queued."""
        ...

    async def return_item(self, batch: Batch, no: int, request_id: str) -> None:
        """A running item whose request did nothing is queued again, in its place."""
        ...

    async def end_item(
        self, batch: Batch, no: int, request_id: str, *, completed: bool, line: bytes, key: str, now: Instant
    ) -> None:
        """A running item has its result. What was stored for the replay of `key`, its request's idempotency key's
        digest, goes with the key."""
        ...

    async def end_queued(self, batch: Batch, lines: Sequence[tuple[int, bytes]], now: Instant) -> None:
        """Queued items fail, each with its line, without having run."""
        ...

    async def queued_items(self, batch: Batch, limit: int) -> Sequence[BatchItem]:
        """The first queued items."""
        ...

    async def running_items(self, batch: Batch) -> Sequence[BatchItem]:
        """The items that were taken and have not ended."""
        ...

    async def answer_of(self, tenant: str, request_id: str, now: Instant) -> bytes | None:
        """The stored answer of a request."""
        ...

    async def results(self, batch: Batch, *, completed: bool, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Numbers and lines of ended items behind number `after`, in order; a line that was erased is empty."""
        ...
