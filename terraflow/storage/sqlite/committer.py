"""Group commit: many verbs, one transaction, one fsync.

1. Statements run on the event loop, microseconds each; only COMMIT, which waits for the disk, runs in a thread.
   While it is away, verbs queue, and the next transaction takes all of them. So the loop never waits for the disk,
   and a statement never waits for the interpreter's lock.
2. A verb checks before it writes. One that refuses (a conflict) has written nothing and leaves the others be. When
   one fails otherwise, the transaction is rolled back and its verbs run again, each in a transaction of its own.
3. A COMMIT that fails is never tried again: its verbs get StoreUnavailable, every connection is closed, and
   nothing runs until the database has been reopened and verified on new file handles.
4. While another process holds the write lock, the transaction waits on the loop's timer, at most `LOCK_PATIENCE_S`;
   what comes after that, while the lock is still held, is refused at once: a request with several verbs waits once.
5. A verb runs to its end even when its caller has been cancelled.
6. Notes ride with the next transaction; alone, they start one after `NOTE_DELAY_S`. One whose verb is given up (a
   commit failed, the lock is held) is appended later unless the log has it by then.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from terraflow.ports.ledger import LedgerConflict
from terraflow.ports.store import StoreConflict, StoreUnavailable
from terraflow.storage.sqlite.connection import Database, is_busy
from terraflow.storage.sqlite.verb import Memory, Verb
from terraflow.storage.sqlite.worker import Worker

T = TypeVar("T")

VERBS_MAX = 128
"""Verbs a transaction: at some 20 µs each, they hold the loop for 3 ms at the most."""
NOTES_MAX = 10_000
"""Notes that may wait; at 1 KB each, 10 MB. Beyond it the store counts as unavailable."""
NOTES_BEHIND = 5_000
"""From so many on the store is behind; what is inside by then, some hundreds of requests, finds room for its notes."""
QUEUE_MAX = 10_000
NOTE_DELAY_S = 0.2
LOCK_PATIENCE_S = 0.2
LOCK_POLL_S = 0.002
LOCK_STILL_HELD_S = 1.0
"""How long after a refusal a lock that is held counts as the same one."""
THREAD_WAIT_S = 10.0
REOPEN_DELAYS_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
"""Pauses before reopening is tried again; the last one repeats."""


_MISUSE = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""A value that no column takes, say: the caller's fault, on a connection that has just been rolled back and is well."""


class CommitCounts:
    """What was committed since the process began. `seconds` is the time that COMMIT took, of failed ones too."""

    __slots__ = ("failed", "seconds", "transactions", "verbs")

    def __init__(self) -> None:
        self.transactions = self.verbs = self.failed = 0
        self.seconds = 0.0


class Committer:
    """The queue, the transaction under way, and the database's health. Lives on one event loop."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self._database = database
        self._memory = memory
        self.counts = CommitCounts()
        self._worker = Worker("terraflow-commit")
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._queue: deque[Verb] = deque()
        self._notes: deque[Verb] = deque()
        self._alone: deque[Verb] = deque()
        self._jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._busy = False
        self._scheduled = False
        self._down = False
        self._stuck = False
        self._closed = False
        self._refused_at = -LOCK_STILL_HELD_S
        self._note_timer: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a verb; the future resolves once its transaction is durable. Raises StoreUnavailable."""
        loop = self._loop or self._bind()
        if self._down or len(self._queue) >= QUEUE_MAX:
            self._refuse("too many verbs wait")
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append(Verb(run, future))
        self._schedule()
        return future

    def note(self, run: Callable[[], None], again: Callable[[], None]) -> None:
        """Queue a verb nobody waits for; `again` runs instead once it may already have taken effect.

        Raises StoreUnavailable when too many wait already.
        """
        loop = self._loop or self._bind()
        if self._closed or len(self._notes) >= NOTES_MAX:
            self._refuse("too many notes wait")
        self._notes.append(Verb(run, None, again))
        if self._note_timer is None:
            self._note_timer = loop.call_later(NOTE_DELAY_S, self._note_due)

    @property
    def behind(self) -> bool:
        """Whether half of the notes that may wait do."""
        return len(self._notes) >= NOTES_BEHIND

    def between_commits(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job in the thread while no transaction is under way. Its failing counts as the database's."""
        loop = self._loop or self._bind()
        if self._down:
            self._refuse("")
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.append((job, future))
        self._schedule()
        return future

    def submit_from_thread(self, run: Callable[[], T]) -> T:
        """Queue a verb from a thread that is not the loop's, and block until it is durable.

        Raises what the verb raises, StoreUnavailable, also when the loop does not answer within `THREAD_WAIT_S`.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            raise StoreUnavailable("the store is not in use")
        done: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(self._awaited(run), loop)
        try:
            return done.result(THREAD_WAIT_S)
        except (TimeoutError, concurrent.futures.CancelledError):
            raise StoreUnavailable("the event loop does not answer") from None

    async def _awaited(self, run: Callable[[], T]) -> T:
        return await self.submit(run)

    async def drain(self) -> None:
        """Return when nothing is queued or under way. Raises StoreUnavailable if notes could not be written."""
        loop = self._loop or self._bind()
        while self._queue or self._notes or self._alone or self._jobs or self._busy:
            if self._stuck:
                raise StoreUnavailable("the database could not be reopened")
            idle: asyncio.Future[None] = loop.create_future()
            self._idle.append(idle)
            self._schedule()
            await idle

    def stop(self) -> None:
        """Take no more verbs and end the thread. Idempotent."""
        self._closed = self._down = True
        self._worker.stop()
        if self._note_timer is not None:
            self._note_timer.cancel()

    def _refuse(self, otherwise: str) -> NoReturn:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        raise StoreUnavailable("the database is being reopened" if self._down else otherwise)

    def _bind(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _note_due(self) -> None:
        self._note_timer = None
        if self._notes:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._busy and not self._down:
            self._scheduled = True
            (self._loop or self._bind()).call_soon(self._begin, 0.0)

    def _begin(self, waited_s: float) -> None:
        self._scheduled = False
        if self._busy or self._down:
            return
        if self._jobs:
            self._do(*self._jobs.popleft())
            return
        try:
            if self._database.begin():
                self._memory.forget()
        except (sqlite3.Error, StoreUnavailable) as error:
            self._cannot_begin(error, waited_s)
            return
        self._refused_at = -LOCK_STILL_HELD_S
        verbs = self._take()
        if self._run(verbs):
            self._commit(verbs)

    def _cannot_begin(self, error: Exception, waited_s: float) -> None:
        if not is_busy(error):
            self._fall(list(self._take()), error)
            return
        loop = self._loop or self._bind()
        if waited_s < LOCK_PATIENCE_S and loop.time() - self._refused_at > LOCK_STILL_HELD_S:
            self._scheduled = True
            pause = min(LOCK_POLL_S + waited_s / 4, LOCK_PATIENCE_S - waited_s + LOCK_POLL_S)
            loop.call_later(pause, self._begin, waited_s + pause)
            return
        self._refused_at = loop.time()
        self._give_up((), StoreUnavailable("another process holds the database's write lock"))
        if self._notes and self._note_timer is None:
            self._note_timer = loop.call_later(NOTE_DELAY_S, self._note_due)
        self._rest()

    def _take(self) -> list[Verb]:
        if self._alone:
            return [self._alone.popleft()]
        verbs = [self._queue.popleft() for _ in range(min(VERBS_MAX, len(self._queue)))]
        verbs += [self._notes.popleft() for _ in range(min(VERBS_MAX, len(self._notes)))]
        return verbs

    def _run(self, verbs: list[Verb]) -> bool:
        """Run the verbs' statements; False if the transaction was rolled back and its verbs queued again."""
        try:
            for verb in verbs:
                try:
                    verb.outcome = verb.run()
                except (StoreConflict, LedgerConflict) as refusal:
                    verb.error = refusal
            self._memory.closing()
        except Exception as error:
            self._roll_back(verbs, error)
            return False
        return True

    def _roll_back(self, verbs: list[Verb], error: Exception) -> None:
        self._memory.forget()
        try:
            if self._database.writer.in_transaction:
                self._database.write("rollback")
        except (sqlite3.Error, StoreUnavailable):
            self._fall(verbs, error)
            return
        if len(verbs) > 1:
            for verb in verbs:
                verb.error = None
            self._alone.extend(verbs)
            self._rest()
        elif isinstance(error, sqlite3.IntegrityError):
            verbs[0].fail(StoreConflict("the verb contradicts what is stored"))
            self._rest()
        elif isinstance(error, sqlite3.Error) and not isinstance(error, _MISUSE):
            self._fall(verbs, error)
        else:
            verbs[0].fail(error)
            self._rest()

    def _commit(self, verbs: list[Verb]) -> None:
        loop = self._loop or self._bind()
        if not self._database.written:
            self._committed(verbs, self._write_commit())
            return
        self._busy = True
        began = loop.time()

        def commit() -> None:
            failure = self._write_commit()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._waited, verbs, failure, began)

        self._worker.run(commit)

    def _write_commit(self) -> Exception | None:
        """COMMIT; why it failed."""
        try:
            self._database.write("commit")
        except Exception as error:
            return error
        return None

    def _waited(self, verbs: list[Verb], failure: Exception | None, began: float) -> None:
        counts = self.counts
        counts.seconds += (self._loop or self._bind()).time() - began
        if failure is None:
            counts.transactions += 1
            counts.verbs += len(verbs)
        else:
            counts.failed += 1
        self._committed(verbs, failure)

    def _do(self, job: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        loop = self._loop or self._bind()
        self._busy = True
        verb = Verb(job, future)

        def run() -> None:
            failure: Exception | None = None
            try:
                verb.outcome = job()
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._committed, [verb], failure)

        self._worker.run(run)

    def _committed(self, verbs: list[Verb], failure: Exception | None) -> None:
        self._busy = False
        if failure is not None:
            self._fall(verbs, failure)
            return
        for verb in verbs:
            verb.resolve()
        self._rest()

    def _rest(self) -> None:
        if self._queue or self._alone or self._jobs or (self._notes and self._note_timer is None):
            self._schedule()
        else:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    def _fall(self, verbs: list[Verb], cause: Exception) -> None:
        """Whether these verbs took effect is unknown: say so, and reopen before anything else (rule 3)."""
        self._down = True
        self._database.withdraw()
        self._memory.forget()
        lost = StoreUnavailable("the database failed")
        lost.__cause__ = cause
        self._give_up((*verbs, *(Verb(*job) for job in self._jobs)), lost)
        self._jobs.clear()
        self._reopen(0)

    def _give_up(self, verbs: Sequence[Verb], error: StoreUnavailable) -> None:
        """Fail these verbs and all that wait; a note, which nobody would ask for again, waits on (rule 6)."""
        for verb in (*verbs, *self._alone, *self._queue):
            if verb.again is not None:
                self._notes.append(Verb(verb.again, None, verb.again))
            else:
                verb.fail(error)
        self._alone.clear()
        self._queue.clear()

    def _reopen(self, attempt: int) -> None:
        loop = self._loop or self._bind()
        if self._closed:
            return

        def reopen() -> None:
            try:
                self._database.reopen()
            except Exception:
                reached = partial(self._not_reopened, attempt + 1)
            else:
                reached = partial(self._reopened)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(reached)

        self._worker.run(reopen)

    def _not_reopened(self, attempt: int) -> None:
        self._stuck = True
        delay = REOPEN_DELAYS_S[min(attempt, len(REOPEN_DELAYS_S) - 1)]
        (self._loop or self._bind()).call_later(delay, self._reopen, attempt)
        idle, self._idle = self._idle, []
        for waiter in idle:
            if not waiter.done():
                waiter.set_result(None)

    def _reopened(self) -> None:
        if self._closed:
            self._database.close()
            return
        self._down = self._stuck = False
        self._rest()
