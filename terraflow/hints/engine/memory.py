"""An engine's two tiers of blocks, and what they say of themselves.

1. What goes from memory (T1) to make room goes to the offloaded tier (T2) if there is one; what a prompt finds there
   comes back. Each tier tells its own comings and goings.
2. A prompt that is held entirely still computes its last block: an engine needs the last token's output.
3. New blocks are told when they are computed, what went when it went.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from terraflow.hints.engine.blocks import Block
from terraflow.hints.engine.cache import BlockCache
from terraflow.hints.engine.wire import CPU, GPU, Cleared, Event, Removed, Stored


class Taken(NamedTuple):
    """A prompt's blocks in use. `there` leading ones were in memory and `hit` of them save work; `loaded` more were
    offloaded; the rest is to be computed. `events` is what to tell at once."""

    blocks: Sequence[Block]
    there: int
    hit: int
    loaded: int
    events: list[Event]


class Memory:
    """`blocks_max` blocks in memory, `offloaded_max` in the second tier (0: there is none)."""

    def __init__(self, blocks_max: int, offloaded_max: int = 0) -> None:
        self._cache: BlockCache[bytes] = BlockCache(blocks_max)
        self._blocks: dict[bytes, Block] = {}
        self._offloaded: OrderedDict[bytes, Block] = OrderedDict()
        self._offloaded_max = offloaded_max

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def offloaded(self) -> int:
        """Blocks in the second tier."""
        return len(self._offloaded)

    @property
    def usage(self) -> float:
        """The share of memory that requests use at the moment."""
        return self._cache.pinned / self._cache.blocks_max

    def take(self, blocks: Sequence[Block], whole: bool) -> Taken:
        """Bring a prompt's blocks in. `whole`: the prompt ends with its last block (rule 2)."""
        pinned = self._cache.pin([block.hash for block in blocks])
        fit = pinned.hit + len(pinned.added)
        useful = len(blocks) - 1 if whole else len(blocks)
        loaded = 0
        for block in blocks[pinned.hit : min(fit, useful)]:
            if block.hash not in self._offloaded:
                break
            self._offloaded.move_to_end(block.hash)
            loaded += 1
        self._keep(blocks[pinned.hit : fit])
        return Taken(blocks[:fit], pinned.hit, min(pinned.hit, useful), loaded, self._gone(pinned.removed))

    def computed(self, taken: Taken) -> list[Event]:
        """The prefill is done: what to tell."""
        new = taken.blocks[taken.there :]
        return [Stored(new, GPU)] if new else []

    def extend(self, taken: Taken, more: Sequence[Block]) -> tuple[Taken, list[Event]]:
        """Blocks that the output filled, after those of the prompt; all of them are in use now. And what to tell."""
        whole = [*taken.blocks, *more]
        pinned = self._cache.pin([block.hash for block in whole])
        self._cache.release([block.hash for block in taken.blocks])
        fit = pinned.hit + len(pinned.added)
        events = self._gone(pinned.removed)
        if pinned.added:
            self._keep(whole[pinned.hit : fit])
            events.append(Stored(whole[pinned.hit : fit], GPU))
        return Taken(whole[:fit], fit, fit, 0, []), events

    def release(self, taken: Taken) -> None:
        """The request is over."""
        self._cache.release([block.hash for block in taken.blocks])

    def abandon(self, taken: Taken) -> None:
        """The request is over before its prefill was: what it would have computed is not there."""
        for lost in self._cache.abandon([block.hash for block in taken.blocks], taken.there):
            del self._blocks[lost]

    def clear(self) -> list[Event]:
        """Forget everything, in both tiers; nothing at all, and no event, while a request uses some of it."""
        if self._cache.pinned:
            return []
        self._cache.clear()
        self._blocks.clear()
        self._offloaded.clear()
        return [Cleared()]

    def _keep(self, blocks: Sequence[Block]) -> None:
        self._blocks.update((block.hash, block) for block in blocks)

    def _gone(self, removed: Sequence[bytes]) -> list[Event]:
        if not removed:
            return []
        events: list[Event] = [Removed(removed, GPU)]
        gone = [self._blocks.pop(each) for each in removed]
        if not self._offloaded_max:
            return events
        fresh = []
        for block in reversed(gone):
            if block.hash not in self._offloaded:
                fresh.append(block)
            self._offloaded[block.hash] = block
            self._offloaded.move_to_end(block.hash)
        events += [Stored(run, CPU) for run in _runs(fresh)]
        over = len(self._offloaded) - self._offloaded_max
        lost = [self._offloaded.popitem(last=False)[0] for _ in range(over)]
        if lost:
            events.append(Removed(lost, CPU))
        return events


def _runs(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks taken together where each follows the one before it."""
    runs: list[list[Block]] = []
    for block in blocks:
        if runs and runs[-1][-1].hash == block.parent:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs
