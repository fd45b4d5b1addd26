"""Long work in turns: one piece of it each time round the loop, whosever it is.

1. What takes milliseconds of the loop, or is short and never ends (a large body's parsing, a step of a long scan, a
   piece of a file), is done here. However many requests have such work, what is short waits for one piece of it, never
   for one of each.
2. Turns are given in the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

LONG_BYTES = 64 * 1024
"""From this size on a body's parsing is long: half a millisecond, or ten when it is all small values."""

T = TypeVar("T")


class Turns:
    """The turns of one loop."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def parsed(self, parse: Callable[[], T], size_bytes: int) -> T:
        """What `parse` makes of a body of this size: at once when it is short, else in its turn."""
        return parse() if size_bytes < LONG_BYTES else await self.take(parse)

    async def take(self, piece: Callable[[], T]) -> T:
        """What `piece` returns or raises, when its turn has come; the loop goes round before the next one."""
        async with self.turn():
            return piece()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The block is a piece, which waits for nothing, when its turn has come; the loop goes round before the next
        one."""
        async with self._one:
            try:
                yield
            finally:
                await asyncio.sleep(0)
