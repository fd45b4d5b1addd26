"""The governed requests that are inside the plane now.

1. A request is here from its first governed step until its outcome is recorded; then whoever waits for it is woken.
2. A caller that leaves interrupts its request only where waiting is all it does: a durable write, once begun, is
   always seen through, so that what is recorded is what happened.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class CallerLeft(Exception):
    """The caller closed its connection before the answer was whole."""


class Presence:
    """Whether the caller is still there, and how to stop waiting when it is not.

    `with presence:` is a wait that the caller's leaving ends with CallerLeft.
    """

    __slots__ = ("_interrupt", "left")

    def __init__(self) -> None:
        self.left = False
        self._interrupt: asyncio.Task[object] | None = None

    def leave(self) -> None:
        """The caller is gone: end the current wait, if there is one, and every later one at its start."""
        self.left = True
        if self._interrupt is not None:
            self._interrupt.cancel()

    def __enter__(self) -> None:
        if self.left:
            raise CallerLeft
        self._interrupt = asyncio.current_task()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._interrupt = self._interrupt, None
        if kind is asyncio.CancelledError and self.left and task is not None:
            task.uncancel()
            raise CallerLeft from None


class Running:
    """The open requests of one process, by request id."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Event | None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, request_id: str) -> None:
        """The request is inside now."""
        self._open[request_id] = None
        self._empty.clear()

    def ended(self, request_id: str) -> None:
        """The request's outcome is recorded. Idempotent."""
        event = self._open.pop(request_id, None)
        if event is not None:
            event.set()
        if not self._open:
            self._empty.set()

    async def wait(self, request_id: str, timeout_s: float) -> bool:
        """True once the request has ended, or is not inside; False when the time ran out first."""
        if request_id not in self._open:
            return True
        event = self._open[request_id]
        if event is None:
            event = self._open[request_id] = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def drained(self, timeout_s: float) -> bool:
        """True once nothing is inside; False when the time ran out first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
