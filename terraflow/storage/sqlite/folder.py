"""The data folder: where its files are, and the lock that makes one plane its only writer of requests.

1. One plane a folder. A second one is refused (`FolderInUse`) after a fraction of a second.
2. The lock is the kernel's (flock): it ends with the process, however that ends, so no stale lock can remain.
3. The folder and its files are for their owner only.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

DATABASE = "terraflow.db"
LOCK = "plane.lock"
ATTEMPTS = 4
PAUSE_S = 0.05
"""A tool that asks whether a plane runs holds the lock for microseconds: worth a second look before refusing."""


class FolderInUse(Exception):
    """Another plane runs on this data folder."""

    def __init__(self, folder: Path, pid: str) -> None:
        super().__init__(f"another plane (process {pid or 'unknown'}) runs on the data folder {folder}")


def make_folder(folder: Path) -> None:
    """The data folder, made if absent, readable by its owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class FolderLock:
    """The plane's claim on a data folder, held until `release`."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for attempt in range(ATTEMPTS):
            if _locked(self._fd, fcntl.LOCK_EX):
                break
            time.sleep(PAUSE_S * (attempt + 1 < ATTEMPTS))
        else:
            pid = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise FolderInUse(folder, pid)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def release(self) -> None:
        """Let another plane have the folder. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def plane_runs(folder: Path) -> bool:
    """Whether a plane holds the folder now. Asking holds a starting plane up for a moment, and never refuses it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
