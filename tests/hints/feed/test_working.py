"""Large messages are applied in turns with everything else, in their order, and whole."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine
from itertools import chain
from typing import Any

import msgspec

from terraflow.hints.events.parse import Batch, Removed, Stored
from terraflow.hints.feed.mapping import PIECE_BLOCKS, Evicts, Holds, Mapping
from terraflow.hints.feed.source import Asked, Source, read_frame
from terraflow.hints.feed.stream import CLEAR
from terraflow.hints.feed.working import Working
from terraflow.hints.index.index import Index
from tests.hints.feed.hostile import SCOPE, IndexSink

BLOCKS = 20_000
pack = msgspec.msgpack.encode


def name(at: int) -> bytes:
    return at.to_bytes(8, "big")


def blocks(first: int, last: int) -> Stored:
    parent = None if first == 0 else name(first - 1)
    return Stored([name(at) for at in range(first, last)], parent, array("I", range(first * 2, last * 2)), 2)


def told(mapping: Mapping, *events: Stored | Removed) -> list[tuple[bytes, int]]:
    """What the index is to hold in the end."""
    held: dict[bytes, int] = {}
    for write in chain.from_iterable(mapping.pieces(Batch(list(events)))):
        if isinstance(write, Holds):
            for entry in write.entries:
                held.update(zip(entry.hashes, entry.counts, strict=True))
        elif isinstance(write, Evicts):
            for hash_ in write.hashes:
                del held[hash_]
    return list(held.items())


def test_a_long_event_is_what_its_parts_would_be() -> None:
    whole, parts = Mapping(), Mapping()
    gone = Removed([name(at) for at in range(100, 5_000)])
    assert told(whole, blocks(0, 7_000), gone) == told(
        parts, *(blocks(at, at + 500) for at in range(0, 7_000, 500)), *(Removed([hash_]) for hash_ in gone.hashes)
    )
    assert whole.known() == parts.known() and whole.counters == parts.counters


def test_blocks_beyond_the_bound_go_by_pieces() -> None:
    mapping = Mapping(blocks_max=1_000)
    held = told(mapping, blocks(0, 5_000))
    assert len(mapping) == len(held) == 1_000 and mapping.counters.forgotten == 4_000
    assert mapping.hashes() == [name(at) for at in range(4_000, 5_000)]


def stored(first: int, last: int) -> bytes:
    event = blocks(first, last)
    parent = None if event.parent is None else int.from_bytes(event.parent, "big")
    return pack([1.0, [["BlockStored", list(range(first, last)), parent, list(event.token_ids), 2]]])


class Held:
    """A source that is worked at, and what came of each thing."""

    def __init__(self) -> None:
        self.sink = IndexSink(Index())
        self.source = Source(self.sink, SCOPE, "r")
        self.came: list[int] = []
        self.working = Working(self.source, self.settled, self.spawn)

    def settled(self, _: list[Asked]) -> None:
        self.came.append(len(self.source.mapping))

    def spawn(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(part)

    def live(self, sequence: int, payload: bytes) -> None:
        frame = read_frame(sequence, payload)
        self.working.happened(lambda: self.source.stream.live(frame))


async def test_the_next_message_waits_for_the_last_and_others_have_their_turns() -> None:
    held = Held()
    held.live(0, stored(0, BLOCKS))
    assert held.working.busy and held.source.stream.expected == 1
    held.live(1, pack([1.0, [["BlockRemoved", [BLOCKS - 1]]]]))
    assert held.source.stream.expected == 1, "what waits is not told before"
    seen, turns = set(), 0
    while held.working.busy:
        seen.add(len(held.source.mapping))
        turns += 1
        await asyncio.sleep(0)
    await held.working.idle()
    assert held.came == [BLOCKS, BLOCKS - 1] and turns > 2
    assert all(blocks % PIECE_BLOCKS == 0 for blocks in seen - {BLOCKS, BLOCKS - 1})
    assert held.source.mapping.counters.unknown_removals == 0 and held.source.stream.expected == 2


async def test_small_messages_are_applied_at_once() -> None:
    held = Held()
    held.live(0, stored(0, 8))
    assert not held.working.busy and held.came == [8]


async def test_what_is_under_way_when_a_feed_ends_is_applied_whole_and_what_waits_not_at_all() -> None:
    held = Held()
    held.live(0, stored(0, BLOCKS))
    held.live(1, stored(BLOCKS, BLOCKS + 8))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    held.working.finish()
    assert len(held.source.mapping) == BLOCKS and held.source.stream.expected == 1


async def test_a_clear_that_waits_clears_all_of_what_came_before() -> None:
    held = Held()
    held.live(0, stored(0, BLOCKS))
    held.working.happened(lambda: [CLEAR])
    await held.working.idle()
    assert held.came == [BLOCKS, 0]
