"""Connections to the database file: one that writes, one that reads on the event loop, and how both are replaced.

1. Every connection is WAL, `synchronous=FULL`, `secure_delete=ON`, and runs no statement on its own account: no
   implicit transaction, no automatic checkpoint.
2. Waiting for another process's write lock is the caller's to arrange: the writer's busy timeout is 0.
3. After opening, and after any failed commit, what the write-ahead log holds is written to the database file again
   and synced, before anything reads it. Linux marks pages whose fsync failed as clean, so syncing them again
   proves nothing; writing them again does. (https://www.sqlite.org/atomiccommit.html, and "fsyncgate", PostgreSQL
   2018.)
4. `reopen` closes every connection of this process before opening any: SQLite keeps a file handle that a sibling
   connection still needs, and a new handle is the point.
5. It does so in a thread. So that none is closed, or still being made ready, while the loop runs a statement on it, the
   loop lets go of them first (`withdraw`), and gets the new ones when all of them are whole.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.queries import SQL
from terraflow.storage.sqlite.schema import DatabaseUnusable, ensure_schema, require_schema
from terraflow.storage.sqlite.wal import empty_log, verify_tail

T = TypeVar("T")
Row = tuple[Any, ...]
Connect = Callable[..., sqlite3.Connection]

WRITER_CACHE_KIB = 8_192
READER_CACHE_KIB = 4_096


def open_connection(
    path: Path,
    *,
    busy_timeout_s: float = 0.0,
    cache_kib: int = READER_CACHE_KIB,
    connect: Connect = sqlite3.connect,
) -> sqlite3.Connection:
    """A connection that keeps rule 1. Raises sqlite3.Error."""
    connection = connect(
        os.fspath(path),
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",
            "foreign_keys=ON",
            "wal_autocheckpoint=0",
            "trusted_schema=OFF",
            "temp_store=MEMORY",
            f"cache_size=-{cache_kib}",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_busy(error: BaseException) -> bool:
    """Whether a statement failed only because another connection holds the lock it needs."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for what the sqlite3 module raises on its own account."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class Database:
    """The plane's connections. `write` and `many` belong to the transaction under way, `read` to anyone on the loop.

    `patience_s` is how long a statement may wait for another process: rule 2, unless a tool asks. `guest` is a tool
    beside a running plane: it leaves the schema and the log to the plane.
    """

    def __init__(
        self,
        path: Path,
        *,
        connect: Connect = sqlite3.connect,
        durable: bool = True,
        patience_s: float = 0.0,
        guest: bool = False,
    ) -> None:
        self.path = path
        self._guest = guest
        self._patience_s = patience_s
        self._connect = connect
        self._durable = durable
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._withdrawn: list[sqlite3.Connection] = []
        self._siblings: list[Sibling] = []
        self._changes = 0
        self._version = -1

    def open(self) -> None:
        """Open, make or migrate the schema, and make what the log holds durable (rule 3).

        Leaves nothing open where it raises: sqlite3.Error, StoreUnavailable while another process reads, or
        DatabaseUnusable for a file that is not ours or whose newest leaves do not hash.
        """
        if not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            if primary_code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise DatabaseUnusable("the file is not a database, or is damaged") from error
            raise

    def reopen(self) -> None:
        """Close every connection of the process, then open anew. Raises what `open` raises."""
        self.close()
        self.open()

    def withdraw(self) -> None:
        """Nothing runs on the connections that there are from now on; they are still open. Idempotent."""
        self._withdrawn += [held for held in (self._reader, self._writer) if held is not None]
        self._writer = self._reader = self._cursor = None

    def close(self) -> None:
        """Let go of every file handle. Idempotent."""
        self.withdraw()
        for sibling in self._siblings:
            sibling.close()
        withdrawn, self._withdrawn = self._withdrawn, []
        for connection in withdrawn:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def sibling(self) -> Sibling:
        """A further connection of this process, for a thread of its own."""
        sibling = Sibling(self)
        self._siblings.append(sibling)
        return sibling

    def connect_sibling(self) -> sqlite3.Connection:
        """What a sibling holds. Raises StoreUnavailable while the writer is not open, sqlite3.Error."""
        if self._writer is None:
            raise StoreUnavailable("the database is being reopened")
        return open_connection(self.path, busy_timeout_s=1.0, connect=self._connect)

    @property
    def writer(self) -> sqlite3.Connection:
        """The writing connection. Raises StoreUnavailable while there is none."""
        if self._writer is None:
            raise StoreUnavailable("the database is being reopened")
        return self._writer

    def _open(self) -> None:
        writer = open_connection(self.path, cache_kib=WRITER_CACHE_KIB, connect=self._connect)
        try:
            if not self._durable:
                writer.execute("PRAGMA synchronous=OFF")
            with _patience(writer, self._patience_s):
                if self._guest:
                    require_schema(writer)
                else:
                    ensure_schema(writer)
                    if not empty_log(writer).durable:
                        raise StoreUnavailable("another process reads an older state, so the log cannot be synced")
            verify_tail(writer)
            reader = open_connection(self.path, busy_timeout_s=0.05, connect=self._connect)
            reader.execute("PRAGMA query_only=ON")
        except BaseException:
            writer.close()
            raise
        self._writer, self._reader, self._cursor = writer, reader, writer.cursor()

    def write(self, name: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a named statement inside the transaction under way; its cursor is good until the next one."""
        cursor = self._cursor
        if cursor is None:
            raise StoreUnavailable("the database is being reopened")
        return cursor.execute(SQL[name], parameters)

    def insert(self, name: str, parameters: Sequence[Any]) -> int:
        """Run a named INSERT inside the transaction under way; the row's id."""
        self.write(name, parameters)
        ((row_id,),) = self.writer.execute("SELECT last_insert_rowid()").fetchall()
        return int(row_id)

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a named statement once for each row, inside the transaction under way."""
        self.writer.executemany(SQL[name], rows)

    @property
    def written(self) -> bool:
        """Whether the transaction under way has changed a row."""
        return self.writer.total_changes != self._changes

    def begin(self) -> bool:
        """Start a transaction; True if another connection has written since the last one. Raises sqlite3.Error."""
        cursor = self.write("begin")
        self._changes = self.writer.total_changes
        (version,) = cursor.execute(SQL["data_version"]).fetchone()
        seen, self._version = self._version, version
        return bool(seen != version)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction on its own, blocking, for opening and for tools. Raises sqlite3.Error."""
        self.write("begin")
        try:
            yield
        except BaseException:
            self.write("rollback")
            raise
        self.write("commit")

    def read(self, name: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Committed rows, at once. Raises StoreUnavailable."""
        if self._reader is None:
            raise StoreUnavailable("the database is being reopened")
        try:
            return self._reader.execute(SQL[name], parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable("the database cannot be read") from error


class Sibling:
    """A connection that any thread may use, one at a time, and that opens itself again after a reopening."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one statement. Blocks. Raises StoreUnavailable."""
        return self.use(lambda connection: connection.execute(statement, parameters).fetchall())

    def use(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run something with the connection. Blocks. Raises StoreUnavailable."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._database.connect_sibling()
                return run(self._connection)
            except sqlite3.Error as error:
                raise StoreUnavailable("the database cannot be read") from error

    def close(self) -> None:
        """Give the file handle back, once the statement under way has ended."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()


@contextlib.contextmanager
def _patience(connection: sqlite3.Connection, afterwards_s: float) -> Iterator[None]:
    """Wait for other processes while opening: right there, wrong on the event loop."""
    connection.execute("PRAGMA busy_timeout=5000")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={int(afterwards_s * 1000)}")
