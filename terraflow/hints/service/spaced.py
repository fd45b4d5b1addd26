"""Work that anybody may ask for, and that costs everybody's time: a scrape, of which each is tens of milliseconds.

1. It is done once for all who wait, and begun after the last of them asked: what they get is never older than that.
2. It takes no more than a tenth of the time: after it has taken so long, it rests nine times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

REST = 9.0


class Spaced(Generic[Made]):
    """See the module. Used on one loop."""

    def __init__(self, make: Callable[[], Awaitable[Made]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[Made] | None = None
        self._rests_until = 0.0

    async def made(self) -> Made:
        """What `make` returns, or raises, for who asks now."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._made())
        return await asyncio.shield(self._next)

    async def _made(self) -> Made:
        now = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._rests_until - now())
            self._next = None
            began = now()
            try:
                return await self._make()
            finally:
                ended = now()
                self._rests_until = ended + REST * (ended - began)
