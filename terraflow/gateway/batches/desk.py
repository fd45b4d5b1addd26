"""What callers do with batches: hand in files, have batches made of them, look at them, cancel them.

1. A batch is accepted whole or not at all: every line is read before anything of it is kept.
2. Files and batches are an application's: another one's look like none.
3. The files of results are made of the items when they are read; their ids are the batch's, with a word behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import MICRO, Instant
from terraflow.gateway.batches.item import ENDPOINTS, INVOCATIONS_PATH, above_p3
from terraflow.gateway.batches.lines import Reading, problem
from terraflow.gateway.batches.runner import BatchLimits, Runner
from terraflow.gateway.batches.uploads import Uploads
from terraflow.gateway.exchange import Declared
from terraflow.gateway.in_force import bundle_in_force
from terraflow.gateway.plane import Plane
from terraflow.gateway.turns import LONG_BYTES, Turns
from terraflow.ports.batches import ENDED, Batch, BatchFile, BatchStatus, BatchStore, Page, Room
from terraflow.ports.store import KeyHolder, StoreUnavailable

RETRY_S = 60
"""When to come back after there was no room: batches last minutes."""
LINES_AT_ONCE, BYTES_AT_ONCE = 16, 256 * 1024
"""Lines that are read at a time when results are sent: fewer where they are long on the average. A line of pictures has
megabytes, and is in memory for each who reads it."""
PAGE_BYTES = 256 * 1024
"""Metadata of the batches of a page, which ends there; each may have 17 KB."""
READERS_MAX = 16
"""Files of one tenant that are read at a time: each holds up to a megabyte while its caller takes it."""
OUTPUT, ERRORS = "-output", "-errors"
UPLOADED, RESULTS = "batch", "batch_output"
"""What a file is for, in OpenAI's words."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it was asked for: `window_s` seconds are written `window`; the endpoint None is the lines' own."""

    endpoint: str | None = None
    input_file: str | None = None
    window: str = "24h"
    window_s: int = 86_400
    metadata: bytes = b""


class Shortened(Exception):
    """A file was erased while it was read, or does not open any more."""


class ResultFile(msgspec.Struct, frozen=True):
    """The results of a batch that has ended: the completed items' lines, or those of the others."""

    batch: Batch
    completed: bool

    @property
    def id(self) -> str:
        """Its id as a file."""
        return self.batch.id.replace("batch_", "file-") + (OUTPUT if self.completed else ERRORS)

    @property
    def created_at(self) -> Instant:
        """When its batch ended."""
        return self.batch.ended_at or self.batch.created_at

    @property
    def size_bytes(self) -> int:
        """The bytes of its lines."""
        return self.batch.output_bytes if self.completed else self.batch.error_bytes

    @property
    def lines(self) -> int:
        """How many there are, those counted that were erased since."""
        return self.batch.completed if self.completed else self.batch.failed


def result_files(batch: Batch) -> tuple[str | None, str | None]:
    """The ids of a batch's output and error file; None for one that is not there, or not yet."""
    ended = batch.status in ENDED
    output = ResultFile(batch, True).id if ended and batch.completed else None
    errors = ResultFile(batch, False).id if ended and batch.failed else None
    return output, errors


class Batches:
    """The desk. A place of `uploads` is held while a body is read and kept."""

    def __init__(self, plane: Plane, store: BatchStore, limits: BatchLimits, runner: Runner) -> None:
        self.limits = limits
        self.runner = runner
        self.uploads = Uploads()
        self._plane = plane
        self._store = store
        # A batch that is being made is in memory some times over: its bytes, its lines, the items made of them.
        self._making = asyncio.Lock()
        # Turns of their own: neither a request with its body nor a batch that is made waits for those who read files
        # or lists of them.
        self._reading = Turns()
        self._readers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def keep(self, caller: KeyHolder, name: str, data: bytes, keep_s: int) -> BatchFile | Refuse:
        """A file to make a batch of, for so long; QUEUE_SHED without room."""
        now = self._plane.clock.now()
        file = BatchFile(
            id=self._plane.ids.request_id().replace("req_", "file-"),
            tenant=caller.tenant,
            application=caller.application,
            name=name,
            size_bytes=len(data),
            created_at=now,
            expires_at=Instant(now + keep_s * MICRO),
        )
        kept = await self._store.keep_file(file, data, self.limits.stored_bytes_max)
        return file if kept else no_room()

    async def file(self, caller: KeyHolder, file_id: str) -> BatchFile | ResultFile | None:
        """A file by its id."""
        now = self._plane.clock.now()
        _, dash, word = file_id.removeprefix("file-").partition("-")
        if not dash:
            return await self._store.find_file(caller.tenant, caller.application, file_id, now)
        batch = await self._store.find_batch(caller.tenant, caller.application, _batch_id(file_id), now)
        if batch is None or file_id not in result_files(batch):
            return None
        return ResultFile(batch, dash + word == OUTPUT)

    async def files(
        self, caller: KeyHolder, after: str | None, limit: int, *, newest_first: bool, purpose: str | None
    ) -> tuple[Sequence[BatchFile | ResultFile], bool] | Refuse:
        """Files of a purpose, None for all, in the order of their creation, behind the one named `after`, and whether
        there are more; NOT_FOUND."""
        now, behind = self._plane.clock.now(), None
        if after is not None:
            file = await self.file(caller, after)
            if file is None:
                return Refuse(reason=ModelApi.NOT_FOUND)
            behind = _place(file)
        owner = (caller.tenant, caller.application)
        found: list[BatchFile | ResultFile] = []
        async with self._reading.turn():
            if purpose in (None, UPLOADED):
                page = Page(behind=behind, newest_first=newest_first, limit=limit + 1)
                found += await self._store.list_files(*owner, page, now)
            if purpose in (None, RESULTS):
                # A batch has up to two files: the one at whose file the page before ended may have another.
                at = None if behind is None else (behind[0], _batch_id(behind[1]))
                page = Page(behind=at, newest_first=newest_first, limit=limit + 2)
                for batch in await self._store.list_results(*owner, page, now):
                    files = [ResultFile(batch, completed) for completed in (True, False)]
                    found += [file for file in files if file.lines and _is_behind(file, behind, newest_first)]
        found.sort(key=_place, reverse=newest_first)
        return found[:limit], len(found) > limit

    def reader(self, tenant: str) -> asyncio.Semaphore:
        """What is held while a file is read; forgotten with the last who waits."""
        return self._readers.setdefault(tenant, asyncio.Semaphore(READERS_MAX))

    def pieces(self, file: BatchFile | ResultFile) -> AsyncIterator[bytes]:
        """The bytes of a file, a piece at a time, each in its turn. Raises Shortened, at the end."""
        return self._uploaded(file, self._reading) if isinstance(file, BatchFile) else self._resulting(file)

    async def _uploaded(self, file: BatchFile, turns: Turns) -> AsyncIterator[bytes]:
        no, left = 0, file.size_bytes
        while True:
            async with turns.turn():
                piece = await self._store.read_piece(file, no)
            if piece is None:
                break
            yield piece
            no, left = no + 1, left - len(piece)
        if left:
            raise Shortened

    async def _resulting(self, file: ResultFile) -> AsyncIterator[bytes]:
        after, left = -1, file.lines
        limit = max(1, min(LINES_AT_ONCE, BYTES_AT_ONCE * file.lines // max(1, file.size_bytes)))
        while True:
            async with self._reading.turn():
                found = await self._store.results(file.batch, completed=file.completed, after=after, limit=limit)
            if not found:
                break
            after, left = found[-1][0], left - len(found)
            yield b"".join(line for _, line in found)
        if left:
            raise Shortened

    async def drop(self, caller: KeyHolder, file_id: str) -> bool:
        """Erase an uploaded file. A batch made of it has lines of its own. Results go with their batch's time."""
        return await self._store.drop_file(caller.tenant, caller.application, file_id, self._plane.clock.now())

    async def create_of_file(self, caller: KeyHolder, declared: Declared, asked: Asked) -> Batch | Refuse:
        """A batch of an uploaded file; what `create` says, or INVALID_REQUEST when there is none."""
        assert asked.input_file is not None
        none = invalid_request("input_file_id", "must be a file that this application uploaded")
        file = await self.file(caller, asked.input_file)
        if not isinstance(file, BatchFile):
            return none
        async with self._making:
            try:
                data = b"".join([piece async for piece in self._uploaded(file, Turns())])
            except Shortened:
                # The lines that are left are not what was handed in.
                return none
            return await self._create(caller, declared, asked, data)

    async def create(self, caller: KeyHolder, declared: Declared, asked: Asked, data: bytes) -> Batch | Refuse:
        """A batch of these lines; INVALID_REQUEST, DUPLICATE_CUSTOM_ID, UNKNOWN_WORKLOAD, BATCH_REQUIRES_P3,
        BUNDLE_INVALID, BUNDLE_EXPIRED, or QUEUE_SHED without room."""
        async with self._making:
            return await self._create(caller, declared, asked, data)

    async def _create(self, caller: KeyHolder, declared: Declared, asked: Asked, data: bytes) -> Batch | Refuse:
        reading = await self._read(data, asked.endpoint)
        if isinstance(reading, Refuse):
            return reading
        now = self._plane.clock.now()
        bundle = bundle_in_force(self._plane)
        if isinstance(bundle, Refuse):
            return bundle
        for (workload, model), no in reading.named.items():
            # Only an invocation's body names its workload so; elsewhere the word has no meaning.
            named = workload if reading.endpoint == INVOCATIONS_PATH else None
            refuse = above_p3(bundle, caller, declared.workload or named, model, now)
            if refuse is not None:
                return refuse if declared.workload is not None else _of_line(refuse, no)
        assert reading.endpoint is not None
        batch = Batch(
            id=self._plane.ids.request_id().replace("req_", "batch_"),
            tenant=caller.tenant,
            application=caller.application,
            key_id=caller.key_id,
            endpoint=reading.endpoint,
            input_file=asked.input_file,
            workload=declared.workload,
            data_class=None if declared.data_class is None else declared.data_class.label,
            sensitive_types=tuple(sorted(declared.sensitive_types)),
            window=asked.window,
            metadata=asked.metadata,
            created_at=now,
            expires_at=Instant(now + asked.window_s * MICRO),
        )
        room = Room(open_max=self.limits.open_max, bytes_max=self.limits.stored_bytes_max)
        try:
            made = await self._store.open_batch(batch, reading.items, room)
        except StoreUnavailable:
            self.runner.add(batch, troubled=True)
            raise
        if made is None:
            return no_room()
        self.runner.add(made)
        return made

    async def _read(self, data: bytes, endpoint: str | None) -> Reading | Refuse:
        """The lines of a batch, some a turn of the loop."""
        limits, of_body = self.limits, self._plane.limits
        if data.count(b"\n") + (not data.endswith(b"\n")) > limits.items_max:
            return invalid_request("lines", f"must be at most {limits.items_max}")
        reading = Reading(endpoint, frozenset(ENDPOINTS), of_body.body_bytes_max, of_body.body_values_max)
        some: list[bytes] = []
        size, first = 0, 1
        lines = data.split(b"\n")
        for no, line in enumerate(lines, 1):
            some.append(line)
            size += len(line)
            if size < LONG_BYTES and no < len(lines):
                continue
            refuse = await self._plane.turns.take(partial(reading.take, some, first))
            if refuse is not None:
                return refuse
            some, size, first = [], 0, no + 1
        if not reading.items:
            return invalid_request("lines", "must be at least one")
        return reading

    async def find(self, caller: KeyHolder, batch_id: str) -> Batch | Refuse:
        """A batch as it stands; BATCH_NOT_FOUND."""
        now = self._plane.clock.now()
        found = await self._store.find_batch(caller.tenant, caller.application, batch_id, now)
        return Refuse(reason=ModelApi.BATCH_NOT_FOUND) if found is None else found

    async def page(self, caller: KeyHolder, after: str | None, limit: int) -> tuple[Sequence[Batch], bool] | Refuse:
        """Batches newest first, behind the one named `after`, and whether there are more; BATCH_NOT_FOUND. Fewer than
        asked for where their metadata is long."""
        behind = None if after is None else await self.find(caller, after)
        if isinstance(behind, Refuse):
            return behind
        now = self._plane.clock.now()
        async with self._reading.turn():
            found = await self._store.list_batches(caller.tenant, caller.application, behind, limit + 1, now)
        page: list[Batch] = []
        size = 0
        for batch in found[:limit]:
            size += len(batch.metadata)
            if page and size > PAGE_BYTES:
                break
            page.append(batch)
        return page, len(found) > len(page)

    async def cancel(self, caller: KeyHolder, batch_id: str) -> Batch | Refuse:
        """The batch, which takes no further item; one that is ending or has ended stays as it is. BATCH_NOT_FOUND."""
        found = await self.find(caller, batch_id)
        if isinstance(found, Batch) and found.status is BatchStatus.IN_PROGRESS:
            await self._store.cancel_batch(found, self._plane.clock.now())
            found = await self.find(caller, batch_id)
        if isinstance(found, Batch) and found.status is BatchStatus.CANCELLING:
            # Also one that was so before: the store may have failed once it had taken that in.
            self.runner.changed(found)
        return found


def _batch_id(file_id: str) -> str:
    """The batch whose results have this id; of an uploaded file one at the same place in the order of ids."""
    return "batch_" + file_id.removeprefix("file-").partition("-")[0]


def _place(file: BatchFile | ResultFile) -> tuple[Instant, str]:
    return file.created_at, file.id


def _is_behind(file: ResultFile, place: tuple[Instant, str] | None, newest_first: bool) -> bool:
    if place is None:
        return True
    return _place(file) < place if newest_first else _place(file) > place


def no_room() -> Refuse:
    """QUEUE_SHED: no room for another file or batch."""
    return Refuse(reason=Governed.QUEUE_SHED, detail="batches", retry_after_s=RETRY_S)


def _of_line(refuse: Refuse, no: int) -> Refuse:
    """The refusal of a workload that a line's own body leads to; the application's default is the one of a line that
    names none."""
    if refuse.reason is ModelApi.BATCH_REQUIRES_P3:
        found = problem(
            no, "body", "must name a workload of priority P3: the default workload counts where none is named"
        )
    else:
        found = problem(no, "body.workload", "must be a workload of this workspace")
    return msgspec.structs.replace(refuse, problems=(found,))
