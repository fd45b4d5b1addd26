"""Work beside the requests of a process: begun with it, told of when it fails, ended with it.

1. Work that ends by itself is a fault, told in the log; nothing else is kept from its end by it.
2. Of a fault its type and place are told, not its text, which may hold what a caller sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from terraflow.gateway.faults import place_of
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.background")


def beside(closing: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run it until `closing` comes to it."""
    task = asyncio.create_task(work)
    task.add_done_callback(_ended)
    closing.push_async_callback(_end, task)


async def again(clock: Clock, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do a piece of work at an interval until cancelled, whatever fails."""
    while True:
        await clock.sleep(interval_s)
        try:
            await work()
        except Exception as fault:
            log.error("background work failed, and is tried again: %s", place_of(fault))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _ended(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    fault = task.exception()
    if fault is not None:
        log.error("background work has ended: %s", place_of(fault))
    elif not task.cancelling():
        log.error("background work has ended: by itself")
