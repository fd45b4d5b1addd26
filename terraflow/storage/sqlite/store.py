"""The SQLite store: the verbs of ports.store, each a few statements of a transaction that many share.

Reads are statements on a connection of their own, on the event loop, microseconds each.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from terraflow.core.types import Instant
from terraflow.ports.runtime import Clock
from terraflow.ports.store import (
    CachedAnswer,
    Claim,
    Entry,
    Erased,
    KeyClaim,
    KeyHolder,
    KeyOutcome,
    NoRoom,
    Orphan,
    RecordedEntry,
    Reservation,
    Reserved,
    Settlement,
    StoredAnswer,
)
from terraflow.storage.sqlite import keys
from terraflow.storage.sqlite.answers import Answers
from terraflow.storage.sqlite.batches import SqliteBatches
from terraflow.storage.sqlite.claims import Claims
from terraflow.storage.sqlite.committer import CommitCounts, Committer
from terraflow.storage.sqlite.connection import Connect, Database
from terraflow.storage.sqlite.erasure import erase_some
from terraflow.storage.sqlite.folder import DATABASE, FolderLock, make_folder
from terraflow.storage.sqlite.keys import Write
from terraflow.storage.sqlite.ledger import SqliteLedger
from terraflow.storage.sqlite.log import Log
from terraflow.storage.sqlite.money import Money
from terraflow.storage.sqlite.orphans import find_orphans
from terraflow.storage.sqlite.pruning import prune_some
from terraflow.storage.sqlite.seal import Seal
from terraflow.storage.sqlite.wal_checkpoints import WalCheckpoints

T = TypeVar("T")

RESERVED = Reserved()
ANSWERS_BYTES_MAX = 1 << 30


class SqliteStore:
    """A `Store` over one database file. Made by `open_store`; belongs to one event loop."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        answer_key: bytes | None,
        answers_bytes_max: int,
        release: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._release = release
        self._log = Log(database)
        self._money = Money(database)
        seal = Seal(answer_key)
        self._answers = Answers(database, seal, answers_bytes_max)
        self._claims = Claims(database, self._answers)
        self._committer = Committer(database, self)
        self._wal = WalCheckpoints(database, self._committer)
        self._closed = False
        self.ledger = SqliteLedger(database.sibling(), self._transact)
        self.batches = SqliteBatches(database, self._committer, seal, self._answers, self.erase)

    @property
    def commits(self) -> CommitCounts:
        """What was committed so far."""
        return self._committer.counts

    def closing(self) -> None:
        """Part of the transaction, called by the committer."""
        self._money.write_changes()
        self._wal.wrote()

    def forget(self) -> None:
        """Part of the transaction, called by the committer."""
        self._log.forget()
        self._money.forget()

    async def find_key(self, digest: str) -> KeyHolder | None:
        """See the port."""
        return keys.find(self._database, digest)

    async def active_sequence(self) -> int:
        """See the port."""
        rows = self._database.read("active_sequence")
        return rows[0][0] if rows else 0

    async def active_bundle(self) -> bytes | None:
        """See the port."""
        rows = self._database.read("active_bundle")
        return rows[0][0] if rows else None

    async def claim(self, claim: KeyClaim, now: Instant) -> Claim:
        """See the port."""
        return await self._committer.submit(partial(self._claims.claim, claim, now))

    async def begin(self, entries: Sequence[Entry], reservation: Reservation | None) -> Reserved | NoRoom:
        """See the port."""
        return await self._committer.submit(partial(self._begin, entries, reservation))

    async def reserve(self, reservation: Reservation) -> Reserved | NoRoom:
        """See the port."""
        return await self._committer.submit(partial(self._begin, (), reservation))

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """See the port."""
        await self._committer.submit(partial(self._finish, (), settlements, None, None))

    async def finish(
        self,
        entries: Sequence[Entry],
        settlements: Sequence[Settlement] = (),
        answer: StoredAnswer | None = None,
        key: KeyOutcome | None = None,
    ) -> None:
        """See the port."""
        row = None if answer is None else self._answers.row(answer, self._clock.now())
        await self._committer.submit(partial(self._finish, entries, settlements, row, key))

    def note(self, entries: Sequence[Entry]) -> None:
        """See the port. Raises StoreUnavailable when too many notes wait already."""
        self._committer.note(partial(self._log.append, entries), partial(self._log.append_missing, entries))

    def behind(self) -> bool:
        """See the port."""
        return self._committer.behind

    async def find_answer(self, tenant: str, cache_key: str, now: Instant) -> CachedAnswer | None:
        """See the port."""
        return self._answers.of_cache_key(tenant, cache_key, now)

    async def find_entries(self, tenant: str, application: str, request_id: str) -> Sequence[RecordedEntry]:
        """See the port."""
        return self._log.of_request(tenant, application, request_id)

    async def erase(
        self, *, tenant: str | None = None, request_id: str | None = None, before: Instant | None = None
    ) -> Erased:
        """See the port. Nothing erased is left in any file when it returns, unless another process is reading an
        older state of the database: then the next erasure, or the next start, empties the log."""
        now = self._clock.now()
        total = 0
        while True:
            some = partial(
                erase_some, self._database.write, tenant=tenant, request_id=request_id, before=before, now=now
            )
            erased, more = await self._committer.submit(some)
            total += erased
            if not more:
                break
        if total:
            await self._wal.empty()
        return Erased(total)

    async def prune(self) -> int:
        """See the port."""
        now, total = self._clock.now(), 0
        while True:
            pruned, more = await self._committer.submit(partial(self._prune_some, now))
            total += pruned
            if not more:
                return total

    async def orphans(self) -> Sequence[Orphan]:
        """See the port."""
        return find_orphans(self._database, self._money)

    async def drain(self) -> None:
        """See the port."""
        await self._committer.drain()

    async def close(self) -> None:
        """See the port. Raises StoreUnavailable, after letting go of the files, if a note could not be written."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._committer.drain()
        finally:
            self._wal.stop()
            self._committer.stop()
            self._database.close()
            self._release()

    def _transact(self, run: Callable[[Write], T]) -> T:
        return self._committer.submit_from_thread(lambda: run(self._database.write))

    def _prune_some(self, now: Instant) -> tuple[int, bool]:
        found = prune_some(self._database.write, now)
        if found.counters:
            # No counter that is gone may stay in memory; what this transaction has changed of others is written first.
            self._money.write_changes()
            self._money.forget()
        return found.rows, found.more

    def _begin(self, entries: Sequence[Entry], reservation: Reservation | None) -> Reserved | NoRoom:
        if reservation is not None:
            refusal = self._money.full_line(reservation)
            if refusal is not None:
                return refusal
        if entries:
            self._log.append(entries)
        if reservation is not None:
            self._money.reserve(reservation)
        return RESERVED

    def _finish(
        self,
        entries: Sequence[Entry],
        settlements: Sequence[Settlement],
        answer: tuple[Any, ...] | None,
        key: KeyOutcome | None,
    ) -> None:
        if settlements:
            self._money.check(settlements)
        if entries:
            self._log.append(entries)
        if settlements:
            self._money.settle(settlements, self._clock.now())
        if answer is not None:
            self._answers.keep(answer)
        if key is not None:
            self._claims.end(key)


def open_store(
    folder: Path | None,
    *,
    clock: Clock,
    answer_key: bytes | None = None,
    answers_bytes_max: int = ANSWERS_BYTES_MAX,
    connect: Connect = sqlite3.connect,
) -> SqliteStore:
    """The plane's store in a data folder, made if absent; None: in memory, gone when closed.

    `answer_key` is 32 bytes, or None to keep answers as they are; all of them together have at most
    `answers_bytes_max`. `connect` stands in for sqlite3.connect.
    Raises FolderInUse while another plane runs on the folder, DatabaseUnusable, sqlite3.Error.
    """
    if folder is None:
        shm = Path("/dev/shm")  # noqa: S108  a folder in memory; the file in it has a random name and is ours only
        held = tempfile.TemporaryDirectory(prefix="terraflow-", dir=shm if shm.is_dir() else None)
        folder, release = Path(held.name), held.cleanup
    else:
        make_folder(folder)
        release = FolderLock(folder).release
        held = None
    database = Database(folder / DATABASE, connect=connect, durable=held is None)
    try:
        database.open()
        with database.transaction():
            database.write("free_claims_without_request")
    except BaseException:
        database.close()
        release()
        raise
    return SqliteStore(database, clock, answer_key, answers_bytes_max, release)
