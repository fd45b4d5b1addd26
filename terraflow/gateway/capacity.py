"""In-flight calls of each capability, against its own limit.

1. A capability without a limit always has room.
2. A slot taken is given back exactly once; waiting for one ends at the caller's deadline.
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
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        while not self.try_take(capability, limit):
            left = ends - loop.time()
            if left <= 0:
                return False
            turn: asyncio.Future[None] = loop.create_future()
            queue = self._waiting.setdefault(capability, deque())
            queue.append(turn)
            try:
                async with asyncio.timeout(left):
                    await turn
            except TimeoutError:
                return False
            finally:
                if not turn.done() or turn.cancelled():
                    if turn in queue:
                        queue.remove(turn)
                    if not queue:
                        self._waiting.pop(capability, None)
        return True

    def give_back(self, capability: str) -> None:
        """Free a slot and wake the longest waiter."""
        left = self._taken[capability] - 1
        if left:
            self._taken[capability] = left
        else:
            del self._taken[capability]
        queue = self._waiting.get(capability)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if queue is not None and not queue:
            self._waiting.pop(capability, None)
