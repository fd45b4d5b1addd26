"""The data folder: where its files are, and the lock that makes one plane its only writer of requests.

1. One plane a folder. A second one is refused (`FolderInUse`), it never waits.
2. The lock is the kernel's (flock): it ends with the process, however that ends, so no stale lock can remain.
3. The folder and its files are for their owner only.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

DATABASE = "terraflow.db"
LOCK = "plane.lock"


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
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise FolderInUse(folder, pid) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def release(self) -> None:
        """Let another plane have the folder. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def plane_runs(folder: Path) -> bool:
    """Whether a plane holds the folder now."""
    try:
        FolderLock(folder).release()
    except FolderInUse:
        return True
    return False
