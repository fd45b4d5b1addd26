"""Keeping the write-ahead log short, and empty after an erasure.

1. Moving pages into the database file happens in a thread of its own, beside the commits, and holds nobody up.
2. The log starts anew only once all of it has been moved, which under load never happens by itself: commits keep
   adding. So past `LOG_FRAMES_MAX` the rest is moved between two commits; by then it is little.
   Where the thread's own attempt fails, the same move decides whether the database has failed.
3. After an erasure the log is cut to nothing, since its old frames hold what was erased.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.committer import Committer
from terraflow.storage.sqlite.connection import Database, empty_log
from terraflow.storage.sqlite.worker import Worker

MOVE = "PRAGMA wal_checkpoint(PASSIVE)"
PERIOD_S = 1.0
LOG_FRAMES_MAX = 4_000
"""16 MB of 4 KiB pages."""
PASSES_MAX = 6
REST_FRAMES = 256
"""So little is left to move between two commits: a few milliseconds. Each pass leaves what was written during it."""


class Checkpointer:
    """Moves the log once a second while anything is written."""

    def __init__(self, database: Database, committer: Committer) -> None:
        self._database = database
        self._committer = committer
        self._connection = database.sibling()
        self._worker = Worker("terraflow-checkpoint")
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def wrote(self) -> None:
        """A batch is about to be committed."""
        if self._timer is None and not self._stopped.is_set():
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._due, asyncio.get_running_loop())

    async def empty(self) -> None:
        """Cut the log to nothing, between two commits. Raises StoreUnavailable."""
        await self._committer.between_commits(lambda: empty_log(self._database.writer))

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._worker.stop()

    def _due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._stopped.is_set():
            self._worker.run(lambda: self._move(loop))

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        frames = 0
        try:
            for _ in range(PASSES_MAX):
                before, (_busy, frames, _moved) = frames, self._connection.rows(MOVE)[0]
                if frames <= LOG_FRAMES_MAX or frames - before <= REST_FRAMES:
                    break
        except StoreUnavailable:
            frames = LOG_FRAMES_MAX + 1
        if frames > LOG_FRAMES_MAX:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._move_rest)

    def _move_rest(self) -> None:
        if not self._stopped.is_set():
            with contextlib.suppress(StoreUnavailable):
                moved = self._committer.between_commits(lambda: self._database.writer.execute(MOVE).fetchone())
                moved.add_done_callback(_heed)


def _heed(moved: asyncio.Future[object]) -> None:
    """A failure is the committer's to act on; here it only counts as seen."""
    if not moved.cancelled():
        moved.exception()
