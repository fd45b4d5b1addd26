"""One thread that does what waits for the disk, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Worker:
    """Jobs are handed over and answer for themselves: a job MUST NOT raise. Ends with the process at the
    latest.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], None]) -> None:
        """Queue a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after the jobs already queued, and wait for it. Idempotent."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
