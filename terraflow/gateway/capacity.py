"""In-flight calls of each capability, against its own limit.

1. A capability without a limit always has room.
2. A slot taken is given back exactly once, and goes straight to whoever waited longest; waiting ends at the caller's
   deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Capacity:
    """Slots of one process, keyed by capability id."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def free(self, capability: str, limit: int | None) -> int | None:
        """How many more calls fit; None when there is no limit."""
        return None if limit is None else max(0, limit - self._taken.get(capability, 0))

    def try_take(self, capability: str, limit: int | None) -> bool:
        """Take a slot if one is free."""
        taken = self._taken.get(capability, 0)
        if limit is not None and taken >= limit:
            return False
        self._taken[capability] = taken + 1
        return True

    async def take(self, capability: str, limit: int | None, timeout_s: float) -> bool:
        """Take a slot, waiting at most `timeout_s`; False when the time ran out."""
        if self.try_take(capability, limit):
            return True
        if timeout_s <= 0:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(capability, deque()).append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as left:
            if turn.done() and not turn.cancelled():
                self.give_back(capability)
            else:
                self._forget(capability, turn)
            if isinstance(left, TimeoutError):
                return False
            raise
        return True

    def give_back(self, capability: str) -> None:
        """Hand the slot to the longest waiter, or free it."""
        queue = self._waiting.get(capability)
        while queue:
            turn = queue.popleft()
            if not queue:
                del self._waiting[capability]
            if not turn.done():
                turn.set_result(None)
                return
        left = self._taken[capability] - 1
        if left:
            self._taken[capability] = left
        else:
            del self._taken[capability]

    def _forget(self, capability: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(capability)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[capability]
