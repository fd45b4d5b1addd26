"""What is done for one source, one thing after the other, with turns for everybody else in between.

1. What happens to a source is told to its stream only when all that came before is applied.
2. What is under way when a feed ends is brought to its end, without turns: a source is never left half written. What
   still waits then never happened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from terraflow.hints.feed.source import Asked, Source
from terraflow.hints.feed.stream import Command
from terraflow.hints.feed.zmq import TURN_S


class Working:
    """See the module. `settled` is called with what comes of each thing that happened."""

    def __init__(
        self,
        source: Source,
        settled: Callable[[list[Asked]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._source = source
        self._settled = settled
        self._spawn = spawn
        self._waiting: deque[Callable[[], list[Command]]] = deque()
        self._steps: Generator[None, None, list[Asked]] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._task is not None

    def happened(self, act: Callable[[], list[Command]]) -> None:
        """Something happened: `act` tells the stream, once that is its turn. At once, as a rule."""
        self._waiting.append(act)
        if self._task is None and not self._advance():
            self._task = self._spawn(self._go_on())

    async def idle(self) -> None:
        """Until nothing is under way."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    def finish(self) -> None:
        """Rule 2; for when the tasks of the feed have ended."""
        self._waiting.clear()
        steps, self._steps = self._steps, None
        if steps is not None:
            for _ in steps:
                pass

    async def _go_on(self) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if self._advance():
                    return
        finally:
            self._task = None

    def _advance(self) -> bool:
        """Go on for a turn; whether all is done."""
        now = asyncio.get_running_loop().time
        until = now() + TURN_S
        while True:
            if self._steps is None:
                if not self._waiting:
                    return True
                self._steps = self._source.steps(self._waiting.popleft()())
            try:
                while True:
                    next(self._steps)
                    if now() >= until:
                        return False
            except StopIteration as done:
                self._steps = None
                self._settled(done.value)
