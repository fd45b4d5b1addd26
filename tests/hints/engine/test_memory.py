"""An engine's two tiers, by what they tell: whoever replays the events knows what is held where."""

from __future__ import annotations

import random

from terraflow.hints.engine.blocks import Block, chain
from terraflow.hints.engine.memory import Memory
from terraflow.hints.engine.wire import CPU, GPU, Cleared, Event, Removed, Stored

SALT = b"salt"


def _blocks(*tokens: int) -> list[Block]:
    return chain(tokens, 1, "", SALT)


class Listener:
    """What the events say, by medium."""

    def __init__(self) -> None:
        self.held: dict[str, set[bytes]] = {GPU: set(), CPU: set()}

    def hear(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Stored):
                fresh = {block.hash for block in event.blocks}
                assert not fresh & self.held[event.medium], "told twice"
                assert all(a.hash == b.parent for a, b in zip(event.blocks, event.blocks[1:], strict=False))
                self.held[event.medium] |= fresh
            elif isinstance(event, Removed):
                assert self.held[event.medium] >= set(event.hashes), "told gone, but was never there"
                self.held[event.medium] -= set(event.hashes)
            else:
                self.held = {GPU: set(), CPU: set()}


def _serve(memory: Memory, blocks: list[Block], listener: Listener) -> tuple[int, int]:
    taken = memory.take(blocks, whole=False)
    listener.hear(taken.events)
    listener.hear(memory.computed(taken))
    memory.release(taken)
    return taken.hit, taken.loaded


def test_a_repeated_prompt_is_hit_and_told_once() -> None:
    memory, listener = Memory(8), Listener()
    assert _serve(memory, _blocks(1, 2, 3), listener) == (0, 0)
    assert _serve(memory, _blocks(1, 2, 9), listener) == (2, 0)
    assert len(listener.held[GPU]) == len(memory) == 4


def test_a_prompt_held_entirely_still_computes_its_last_block() -> None:
    memory = Memory(8)
    memory.release(memory.take(_blocks(1, 2), whole=True))
    taken = memory.take(_blocks(1, 2), whole=True)
    assert (taken.hit, memory.computed(taken)) == (1, [])


def test_what_goes_is_offloaded_and_comes_back() -> None:
    memory, listener = Memory(2, 4), Listener()
    _serve(memory, _blocks(1, 2), listener)
    _serve(memory, _blocks(8, 9), listener)
    assert len(listener.held[CPU]) == 2
    assert _serve(memory, _blocks(1, 2), listener) == (0, 2)
    assert _serve(memory, _blocks(1, 2), listener) == (2, 0)


def test_a_request_that_leaves_while_it_prefills_leaves_nothing() -> None:
    memory, listener = Memory(4), Listener()
    _serve(memory, _blocks(1), listener)
    memory.abandon(memory.take(_blocks(1, 2, 3), whole=False))
    assert len(memory) == 1
    assert _serve(memory, _blocks(1, 2, 3), listener) == (1, 0)


def test_output_fills_further_blocks() -> None:
    memory, listener = Memory(4), Listener()
    taken = memory.take(_blocks(1, 2), whole=False)
    listener.hear(memory.computed(taken))
    taken, events = memory.extend(taken, _blocks(1, 2, 3)[2:])
    listener.hear(events)
    memory.release(taken)
    assert (memory.usage, len(listener.held[GPU])) == (0.0, 3)
    assert _serve(memory, _blocks(1, 2, 3, 4), listener) == (3, 0)


def test_clearing_waits_for_no_one_and_interrupts_no_one() -> None:
    memory = Memory(4, 4)
    taken = memory.take(_blocks(1, 2), whole=False)
    assert memory.clear() == []
    memory.release(taken)
    assert memory.clear() == [Cleared()]
    assert (len(memory), memory.offloaded) == (0, 0)


def test_events_alone_say_what_is_held() -> None:
    luck = random.Random(3)
    memory, listener = Memory(10, 6), Listener()
    for _ in range(3000):
        prompt = [luck.randrange(3) for _ in range(luck.randrange(1, 6))]
        taken = memory.take(_blocks(*prompt), whole=luck.random() < 0.3)
        listener.hear(taken.events)
        if luck.random() < 0.1:
            memory.abandon(taken)
        else:
            listener.hear(memory.computed(taken))
            if luck.random() < 0.3 and len(taken.blocks) == len(prompt):
                taken, events = memory.extend(taken, _blocks(*prompt, 7)[len(prompt) :])
                listener.hear(events)
            memory.release(taken)
        assert len(listener.held[GPU]) == len(memory) <= 10
        assert len(listener.held[CPU]) == memory.offloaded <= 6
        assert memory.usage == 0.0
