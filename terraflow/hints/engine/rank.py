"""One data-parallel rank of an engine: its memory, its queue, and what it counts.

1. Prefill is one request at a time, in order of arrival. A request that leaves while it waits costs nothing; one that
   leaves while it prefills gives its blocks back uncomputed.
2. At most `running_max` requests run, at most `waiting_max` wait; one more is `Busy`.
3. What is told of blocks is told when it happens: evictions when the prefill begins, new blocks when it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from terraflow.hints.engine.blocks import chain
from terraflow.hints.engine.costs import Costs
from terraflow.hints.engine.memory import Memory, Taken
from terraflow.hints.engine.wire import Event


class Busy(Exception):
    """As many requests wait as may."""


class Counts(msgspec.Struct):
    """What a rank counted since it began, in tokens and requests."""

    running: int = 0
    waiting: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    offload_queried_tokens: int = 0
    offload_hit_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    ended: int = 0


class Work(msgspec.Struct):
    """A request whose prompt is in memory."""

    prompt: Sequence[int]
    adapter: str
    taken: Taken
    cached_tokens: int


class Rank:
    """See the module. `publish` takes events at once and MUST NOT wait."""

    def __init__(
        self,
        *,
        memory: Memory,
        costs: Costs,
        block_size: int,
        salt: bytes,
        publish: Callable[[Sequence[Event]], None],
        running_max: int = 256,
        waiting_max: int = 1024,
    ) -> None:
        self.memory, self.costs, self.counts = memory, costs, Counts()
        self._block_size, self._salt, self._publish = block_size, salt, publish
        self._running = asyncio.Semaphore(running_max)
        self._turn = asyncio.Lock()
        self._waiting_max = waiting_max
        self._free_at = 0.0

    async def begin(self, prompt: Sequence[int], adapter: str) -> Work:
        """Wait for one's turn and prefill. Raises Busy. `end` MUST follow."""
        counts = self.counts
        if counts.waiting >= self._waiting_max:
            raise Busy
        arrived = asyncio.get_running_loop().time()
        counts.waiting += 1
        try:
            await self._running.acquire()
            try:
                await self._turn.acquire()
            except BaseException:
                self._running.release()
                raise
        finally:
            counts.waiting -= 1
        counts.running += 1
        try:
            return await self._prefill(prompt, adapter, arrived)
        except BaseException:
            counts.running -= 1
            self._running.release()
            raise
        finally:
            self._turn.release()

    async def _prefill(self, prompt: Sequence[int], adapter: str, arrived: float) -> Work:
        size, counts = self._block_size, self.counts
        blocks = chain(prompt, size, adapter, self._salt)
        taken = self.memory.take(blocks, whole=len(blocks) * size == len(prompt))
        try:
            self._tell(taken.events)
            cached = taken.hit * size
            counts.queried_tokens += len(prompt)
            counts.hit_tokens += cached
            counts.offload_queried_tokens += len(prompt) - cached
            counts.offload_hit_tokens += taken.loaded * size
            missed = len(prompt) - cached - taken.loaded * size
            self._free_at = max(arrived, self._free_at) + self.costs.prefill_s(missed, taken.loaded * size)
            await asyncio.sleep(self._free_at - asyncio.get_running_loop().time())
        except BaseException:
            self._free_at = asyncio.get_running_loop().time()
            self.memory.abandon(taken)
            raise
        self._tell(self.memory.computed(taken))
        counts.prompt_tokens += len(prompt)
        return Work(prompt, adapter, taken, cached + taken.loaded * size)

    def end(self, work: Work, output: Sequence[int], whole: bool) -> None:
        """The request is over, with this much output; `whole`: its reader stayed to the end."""
        taken, size = work.taken, self._block_size
        if len(taken.blocks) == len(work.prompt) // size:
            filled = chain([*work.prompt, *output], size, work.adapter, self._salt)
            taken, events = self.memory.extend(taken, filled[len(taken.blocks) :])
            self._tell(events)
        self.memory.release(taken)
        self.counts.running -= 1
        self.counts.output_tokens += len(output)
        self.counts.ended += whole
        self._running.release()

    def clear(self) -> bool:
        """Forget all blocks; not while requests run."""
        events = self.memory.clear()
        self._tell(events)
        return bool(events)

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            self._publish(events)
