"""How often the loop comes round while something else is done on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """The number so far."""

    number = 0


@asynccontextmanager
async def others_turns() -> AsyncIterator[Turns]:
    """Counts the turns that another task gets."""
    turns = Turns()

    async def counting() -> None:
        while True:
            turns.number += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(counting())
    try:
        yield turns
    finally:
        task.cancel()
