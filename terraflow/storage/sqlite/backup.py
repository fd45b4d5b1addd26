"""A consistent copy of the database, made while the plane runs on it.

1. The copy is one moment's state: a read transaction is held open over the whole copying, and writers go on beside it
   (the write-ahead log grows meanwhile).
2. The copy is judged before it counts: SQLite's integrity check, the newest leaves of every log hashed again, and as
   many leaves in each log as the moment had. A copy that fails is removed.
3. It is on the disk, name included, when the function returns.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from terraflow.core.types import Instant
from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.connection import open_connection
from terraflow.storage.sqlite.erasure import ALL, erase_some
from terraflow.storage.sqlite.log import INDEX_MASK, positions
from terraflow.storage.sqlite.queries import SQL
from terraflow.storage.sqlite.schema import DatabaseUnusable, require_schema
from terraflow.storage.sqlite.wal import verify_tail

PAGES_A_STEP = 2_048
"""8 MB between two reports of progress."""


class BackupDamaged(Exception):
    """The copy is not what was to be copied, and has been removed."""


def back_up(
    source: Path, target: Path, progress: Callable[[int, int], None], *, with_answers: bool = True
) -> dict[str, int]:
    """Copy a database into a new file; the number of leaves of each tenant's log in it.

    `progress` hears how many pages are done and how many there are. Without answers, all that can be erased is erased
    in the copy: of batches it holds what has yet to run. Raises FileExistsError, BackupDamaged, DatabaseUnusable,
    StoreUnavailable.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        expected = _copy(source, target, progress)
        found = _judge(target, with_answers)
        if found != expected:
            raise BackupDamaged("the copy has other logs than the database")
    except BaseException as trouble:
        for path in (target, target.with_name(target.name + "-wal"), target.with_name(target.name + "-shm")):
            path.unlink(missing_ok=True)
        if isinstance(trouble, sqlite3.Error):
            raise StoreUnavailable(f"{source} cannot be copied: {trouble}") from trouble
        if isinstance(trouble, DatabaseUnusable):
            raise DatabaseUnusable(f"{source}: {trouble}") from trouble
        raise
    _flush(target)
    _flush(target.parent)
    return found


def _copy(source: Path, target: Path, progress: Callable[[int, int], None]) -> dict[str, int]:
    reading = open_connection(source, busy_timeout_s=5.0)
    writing = sqlite3.connect(target)
    try:
        require_schema(reading)
        reading.execute("BEGIN")
        expected = _sizes(reading)
        reading.backup(
            writing,
            pages=PAGES_A_STEP,
            progress=lambda _status, left, total: progress(total - left, total),
            sleep=0.0,
        )
    finally:
        writing.close()
        reading.close()
    return expected


def _judge(target: Path, with_answers: bool) -> dict[str, int]:
    copy = open_connection(target)
    try:
        if not with_answers:
            _erase_all(copy)
        (sound,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if sound != "ok":
            raise BackupDamaged("the copy does not pass the integrity check")
        verify_tail(copy)
        return _sizes(copy)
    finally:
        copy.close()


def _erase_all(copy: sqlite3.Connection) -> None:
    def write(name: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return copy.execute(SQL[name], parameters)

    write("begin")
    erase_some(write, tenant=None, request_id=None, before=Instant(1 << 62), now=Instant(0), some=ALL)
    write("commit")


def _sizes(connection: sqlite3.Connection) -> dict[str, int]:
    sizes = {}
    for tenant, no in connection.execute(SQL["tenants"]).fetchall():
        (last,) = connection.execute(SQL["last_position"], positions(no)).fetchone()
        sizes[tenant] = 0 if last is None else int(last & INDEX_MASK) + 1
    return sizes


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
