"""The room of files and batches: what is stored of them, and what is on its way.

1. A file or a batch is written in many transactions, and others begin between them. Each takes the room of all of it
   when it begins, and gives back what has come, which the database counts, and in the end what never came.
2. What a process that died had on its way comes no more: this is its memory alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from terraflow.storage.sqlite.connection import Database


class BatchRoom:
    """The room of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._coming: dict[str, int] = {}

    @contextmanager
    def kept(self, name: str) -> Iterator[None]:
        """While the file or batch of this id is kept."""
        self._coming[name] = 0
        try:
            yield
        finally:
            del self._coming[name]

    def take(self, name: str, size: int, bytes_max: int) -> bool:
        """In a transaction: whether so many bytes fit in, which are on their way from now on."""
        ((stored,),) = self._database.write("batch_bytes").fetchall()
        if stored + sum(self._coming.values()) + size > bytes_max:
            return False
        if name in self._coming:
            self._coming[name] = size
        return True

    def came(self, name: str, size: int) -> None:
        """So many of them are in the database."""
        self._coming[name] = max(0, self._coming[name] - size)
