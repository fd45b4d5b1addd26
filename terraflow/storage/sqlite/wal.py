"""The write-ahead log: moving it into the database file, cutting it, and judging the newest leaves.

1. Moving (`move_log`) goes on beside writers and readers. Cutting (`empty_log`) holds the write lock.
2. Frames that have been moved stay in the log until it starts anew, and so does what they hold.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import NamedTuple

from terraflow.storage.sqlite.schema import DatabaseUnusable

PASSES_MAX = 6
REST_FRAMES = 256
"""So little that moving it under the write lock takes a few milliseconds."""
TAIL_LEAVES = 64
"""How many of the newest leaves of each log a reopening hashes again; signing hashes every one."""


class LogState(NamedTuple):
    """What a checkpoint left of the write-ahead log: whether all of it is in the synced database file, and whether
    the log was cut to nothing besides."""

    durable: bool
    empty: bool


def move_log(connection: sqlite3.Connection, *, enough_frames: int = 0) -> int:
    """Move the write-ahead log into the database file while others go on writing; how many frames the log has.

    Several passes, since each leaves what was written during it, until little is left or the log is short enough.
    """
    frames = 0
    for _ in range(PASSES_MAX):
        before, (_busy, frames, _moved) = frames, connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if frames <= enough_frames or frames - before <= REST_FRAMES:
            break
    return int(frames)


def empty_log(connection: sqlite3.Connection) -> LogState:
    """Move the write-ahead log into the database file, sync both, and cut the log to nothing.

    Holds the write lock meanwhile: with `move_log` before it, a few milliseconds. Another process that reads an
    older state can keep it from being moved, any reader from being cut.
    """
    busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return LogState(durable=frames == moved, empty=not busy)


def verify_tail(connection: sqlite3.Connection) -> None:
    """Hash the newest leaves of every log again. Raises DatabaseUnusable if one is missing or was changed."""
    for (no,) in connection.execute("SELECT no FROM tenant").fetchall():
        rows = connection.execute(
            "SELECT position, data, hash FROM leaf WHERE position BETWEEN ? AND ? ORDER BY position DESC LIMIT ?",
            (no << 40, (no << 40) + (1 << 40) - 1, TAIL_LEAVES),
        ).fetchall()
        for below, row in enumerate(rows):
            if row[0] != rows[0][0] - below:
                raise DatabaseUnusable("the log has a gap near its end")
            if hashlib.sha256(b"\x00" + row[1]).digest() != row[2]:
                raise DatabaseUnusable("a leaf near the log's end is not what was appended")
