"""Payloads that are parsed in steps come to what they would come to at once, and hold what is bounded."""

from __future__ import annotations

import random
from time import perf_counter
from typing import Any

import msgspec
import pytest

from terraflow.hints.events.parse import (
    BATCH_BLOCKS_MAX,
    STORED_MAX,
    Batch,
    Removed,
    Unreadable,
    parse_steps,
)
from terraflow.hints.events.steps import ended

pack = msgspec.msgpack.encode
ODD: list[Any] = [None, 0, -1, 2**32, 2**64 - 1, 1.5, "", "GPU", b"", b"h", [], {}, [1, 2], [[1, 2]], True, {"a": 1}]


def in_steps(payload: bytes) -> Batch | None:
    try:
        return ended(parse_steps(payload, large_bytes=1))
    except Unreadable:
        return None


def at_once(payload: bytes) -> Batch | None:
    try:
        return ended(parse_steps(payload, large_bytes=1 << 30))
    except Unreadable:
        return None


def payload(rng: random.Random) -> bytes:
    def event() -> Any:
        odd = rng.choice(ODD)
        hashes = rng.choice([[1, 2], [b"a"], ["x", 5], list(range(rng.choice((3, 9_000)))), odd])
        tokens = rng.choice([[1, 2, 3, 4], [[1, 2], [3, 4]], None, [5] * rng.choice((1, 70_000)), odd])
        values = [hashes, rng.choice([None, 1, odd]), tokens, rng.choice([2, odd]), odd, "GPU", odd, odd][
            : rng.randrange(3, 9)
        ]
        names = (
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "more",
        )
        one: Any = ["BlockStored", *values]
        if rng.random() < 0.4:
            one = {
                "type": "BlockStored",
                **dict(zip(names, values, strict=False)),
                **({"cache_salt": odd} if odd else {}),
            }
        removed: Any = rng.choice([["BlockRemoved", hashes, odd], {"type": "BlockRemoved", "block_hashes": hashes}])
        return rng.choice(
            [one, one, removed, ["AllBlocksCleared"], ["Unheard", hashes], odd if rng.random() < 0.1 else one]
        )

    events: Any = [event() for _ in range(rng.randrange(4))]
    head = rng.choice([1.0, 1.0, 1.0, rng.choice(ODD)])
    rank = rng.choice([None, 3, rng.choice(ODD)])
    shape = rng.choice(
        [[head, events, rank], ["tag", head, events], {"ts": head, "events": events, "attn_dp_rank": rank}]
    )
    raw = bytearray(pack(shape))
    if rng.random() < 0.2:
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


@pytest.mark.parametrize("seed", range(20))
def test_in_steps_as_at_once(seed: int) -> None:
    rng = random.Random(seed)
    whole = [payload(rng) for _ in range(40)]
    assert [in_steps(raw) for raw in whole] == [at_once(raw) for raw in whole]
    assert any(at_once(raw) for raw in whole)


def test_a_million_tokens_are_read_in_many_steps() -> None:
    tokens = [at * 7 % 150_000 for at in range(1 << 20)]
    raw = pack([1.0, [["BlockStored", list(range(1 << 16)), None, tokens, 16]]])
    steps, longest, before = parse_steps(raw), 0.0, perf_counter()
    count = 0
    batch: Batch | None = None
    while batch is None:
        try:
            next(steps)
        except StopIteration as done:
            batch = done.value
        longest, before, count = max(longest, perf_counter() - before), perf_counter(), count + 1
    assert list(batch.events[0].token_ids) == tokens  # type: ignore[union-attr]
    assert count > 20 and longest < 0.1


def test_blocks_that_are_removed_one_by_one_are_one_event() -> None:
    raw = pack([1.0, [["BlockRemoved", [at], "GPU"] for at in (1, 2)] + [["BlockRemoved", [3], "CPU"]]])
    key = [at.to_bytes(8, "big") for at in range(4)]
    assert ended(parse_steps(raw)).events == [Removed([key[1], key[2]], "GPU"), Removed([key[3]], "CPU")]


@pytest.mark.parametrize(
    "events",
    [
        [["BlockRemoved", [0] * (1 << 16)]] * (BATCH_BLOCKS_MAX // (1 << 16) + 1),
        [["BlockStored", [0], None, [], 16]] * (STORED_MAX + 1),
        [["BlockStored", [], None, [0] * (1 << 20), 16]] * 5,
    ],
)
def test_what_a_batch_may_hold_in_all_is_bounded(events: list[Any]) -> None:
    assert in_steps(pack([1.0, events[:-1]])) is not None
    with pytest.raises(Unreadable, match="that is not all"):
        ended(parse_steps(pack([1.0, events])))
