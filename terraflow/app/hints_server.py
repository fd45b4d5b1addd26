"""The process of a hint service that runs alone: opened, told of, and brought to its end by a signal."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable

import uvloop

from terraflow.app.hints import RunningHints, open_hints
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.runtime import SystemClock
from terraflow.app.telemetry import set_up_logging

GC_EVERY = 20_000


def serve_hints(settings: HintsSettings, listening: Callable[[RunningHints], None]) -> None:
    """Serve until SIGTERM or SIGINT. `listening` is called once, when calls are answered.

    Raises CannotStart, KeyUnusable.
    """
    set_up_logging(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, listening))


async def _serve(settings: HintsSettings, listening: Callable[[RunningHints], None]) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    opening = asyncio.ensure_future(open_hints(settings, SystemClock()))
    ending = asyncio.ensure_future(told.wait())
    await asyncio.wait((opening, ending), return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait((opening,))
        return
    ending.cancel()
    running = opening.result()
    # What the start made stays for good, and a full collection walks everything that is not frozen.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY, 20, 1_000)
    try:
        listening(running)
        await told.wait()
    finally:
        await running.stop()
