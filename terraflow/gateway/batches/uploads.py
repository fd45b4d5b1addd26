"""Whose files and batches are handed in, while the others wait.

1. At most `UPLOADS_MAX` are read at once, from their connection or from their file, for their bytes are in memory then;
   and at most half of them one tenant's: a body may take its whole time to arrive, a large batch a second to be made,
   and nobody else must wait for many of these.
2. A free place goes to the waiting tenant that has the fewest, among equals to the one that was served longest ago; a
   tenant's own wait in the order of their arrival.
3. At most `WAITING_MAX` of one tenant wait; a further one is turned away.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

UPLOADS_MAX = 4
TENANT_MAX = UPLOADS_MAX // 2
WAITING_MAX = 128
"""A burst of small files, each read in milliseconds; a connection that waits has at most 64 KB of its own in memory."""


class Uploads:
    """The places of one process."""

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[bool]:
        """Wait for a place, and hold it for the block; False at once, and no place, by rule 3."""
        taken = await self._take(tenant)
        try:
            yield taken
        finally:
            if taken:
                self._give_back(tenant)

    async def _take(self, tenant: str) -> bool:
        waiting = self._waiting.setdefault(tenant, deque())
        if len(waiting) >= WAITING_MAX:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._let_in()
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._forget(tenant, turn)
            else:
                self._give_back(tenant)
            raise
        return True

    def _give_back(self, tenant: str) -> None:
        self._read[tenant] -= 1
        if not self._read[tenant]:
            del self._read[tenant]
        self._let_in()

    def _let_in(self) -> None:
        while self._read.total() < UPLOADS_MAX:
            able = [tenant for tenant in self._waiting if self._read[tenant] < TENANT_MAX]
            if not able:
                return
            tenant = min(able, key=self._read.__getitem__)
            waiting = self._waiting.pop(tenant)
            turn = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting
            # Its task may have been cancelled, and not have come round to leaving.
            if not turn.cancelled():
                self._read[tenant] += 1
                turn.set_result(None)

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(tenant, deque())
        if turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[tenant]
