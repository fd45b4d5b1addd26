"""A queued call of the store, and what a transaction's fate means to the memory beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class Memory(Protocol):
    """What keeps memory of the database between verbs, and must follow the transaction's fate."""

    def closing(self) -> None:
        """Write what the verbs left in memory; COMMIT follows."""
        ...

    def forget(self) -> None:
        """The transaction is gone, or another connection has written: trust nothing but the database."""
        ...


class Verb:
    """One queued call: what it runs, who waits for it (nobody for a note), and its outcome so far."""

    __slots__ = ("again", "error", "future", "outcome", "run")

    def __init__(
        self, run: Callable[[], Any], future: asyncio.Future[Any] | None, again: Callable[[], Any] | None = None
    ) -> None:
        self.run = run
        self.again = again
        self.future = future
        self.outcome: Any = None
        self.error: BaseException | None = None

    def resolve(self) -> None:
        """Tell whoever still waits."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.outcome)

    def fail(self, error: BaseException) -> None:
        """End with `error`, whatever was found before."""
        self.error = error
        self.resolve()
