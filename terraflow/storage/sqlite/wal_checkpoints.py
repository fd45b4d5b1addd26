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
from terraflow.storage.sqlite.connection import Database
from terraflow.storage.sqlite.wal import empty_log, move_log
from terraflow.storage.sqlite.worker import Worker

PERIOD_S = 1.0
LOG_FRAMES_MAX = 4_000
"""16 MB of 4 KiB pages."""


class WalCheckpoints:
    """Moves the log once a second while anything is written."""

    def __init__(self, database: Database, committer: Committer) -> None:
        self._database = database
        self._committer = committer
        self._connection = database.sibling()
        self._worker = Worker("terraflow-wal")
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._owed = False
        self._rest: asyncio.Future[None] | None = None

    def wrote(self) -> None:
        """A transaction is about to be committed."""
        if self._timer is None and not self._stopped.is_set():
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._due, asyncio.get_running_loop())

    async def empty(self) -> None:
        """Cut the log to nothing. Raises StoreUnavailable.

        Where another process is reading, so that it cannot be cut, it is tried again each second from now on.
        """
        loop = asyncio.get_running_loop()
        moved: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not moved.done():
                moved.set_result(None)

        def move() -> None:
            with contextlib.suppress(StoreUnavailable):
                self._connection.use(move_log)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        self._worker.run(move)
        await moved
        await self._cut()

    async def _cut(self) -> None:
        state = await self._committer.between_commits(lambda: empty_log(self._database.writer))
        self._owed = not state.empty
        if self._owed:
            self.wrote()

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
        try:
            frames = self._connection.use(lambda connection: move_log(connection, enough_frames=LOG_FRAMES_MAX))
        except StoreUnavailable:
            frames = LOG_FRAMES_MAX + 1
        if frames > LOG_FRAMES_MAX or self._owed:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._move_rest)

    def _move_rest(self) -> None:
        if not self._stopped.is_set():
            self._rest = asyncio.ensure_future(self._settled())

    async def _settled(self) -> None:
        """A failure is the committer's to act on: it reopens the database."""
        with contextlib.suppress(StoreUnavailable):
            if self._owed:
                await self._cut()
            else:
                await self._committer.between_commits(lambda: move_log(self._database.writer))
