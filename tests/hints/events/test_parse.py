"""Payloads as vLLM and SGLang have sent them, and as neither ever should."""

import random
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.hints.events.parse import (
    PAYLOAD_BYTES_MAX,
    Batch,
    Cleared,
    Removed,
    Stored,
    Unreadable,
    parse_steps,
)
from terraflow.hints.events.steps import ended
from terraflow.hints.words import BLOCKS_MAX, TOKEN_IDS_MAX

pack = msgspec.msgpack.encode
H = b"\x00" * 7 + b"\x01"

STORED_NAMES = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
STORED = ([1, 2], None, [5, 6, 7, 8], 2, 3, "GPU", "sql")


def parse_batch(payload: bytes) -> Batch:
    return ended(parse_steps(payload))


def stored_array(*more: object) -> list[object]:
    return ["BlockStored", *STORED, *more]


def stored_map(**more: object) -> dict[str, object]:
    return {"type": "BlockStored", **dict(zip(STORED_NAMES, STORED, strict=True)), **more}


def batch_array(*events: object) -> bytes:
    return pack([12.5, list(events), 3])


def batch_map(*events: object, name: str = "data_parallel_rank") -> bytes:
    return pack({"ts": 12.5, "events": list(events), name: 3})


@pytest.mark.parametrize("batch", [batch_array, batch_map])
@pytest.mark.parametrize(
    "events",
    [
        (stored_array(), ["BlockRemoved", [1], "CPU"], ["AllBlocksCleared"]),
        (stored_map(), {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU"}, {"type": "AllBlocksCleared"}),
    ],
)
def test_the_four_combinations_say_the_same(batch, events):
    two = b"\x00" * 7 + b"\x02"
    assert parse_batch(batch(*events)) == Batch(
        [
            Stored([H, two], None, array("I", [5, 6, 7, 8]), 2, 3, "GPU", "sql"),
            Removed([H], "CPU"),
            Cleared(),
        ],
        3,
    )


def test_the_rank_goes_by_several_names_and_a_tag_may_stand_before_a_batch():
    assert parse_batch(batch_map(name="attn_dp_rank")).rank == 3
    assert parse_batch(pack(["KVEventBatch", 1.0, [["AllBlocksCleared"]], 2])) == Batch([Cleared()], 2)
    assert parse_batch(pack({"type": "KVEventBatch", "ts": 1.0, "events": []})) == Batch([])


def test_what_is_absent_is_the_default():
    oldest = parse_batch(pack([1.0, [["BlockStored", [1], 9, [4, 5], 2], ["BlockRemoved", [1]]]]))
    assert oldest == Batch([Stored([H], b"\x00" * 7 + b"\x09", array("I", [4, 5]), 2), Removed([H])])


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (1, H),
        (-1, b"\xff" * 8),
        (2**64 - 1, b"\xff" * 8),
        (-(2**63), b"\x80" + b"\x00" * 7),
        (b"\x01\x02", b"\x01\x02"),
        ("ab", b"ab"),
    ],
)
def test_a_hash_is_an_integer_bytes_or_a_string(sent, read):
    stored, removed = parse_batch(
        pack([0, [["BlockStored", [sent], sent, [1], 1], {"type": "BlockRemoved", "block_hashes": [sent]}]])
    ).events
    assert (stored.hashes, stored.parent, removed.hashes) == ([read], read, [read])


def test_todays_fields_are_read():
    extras = [None, [["image", 0]]]
    event = parse_batch(batch_array(stored_array(extras, 1, "sliding_window", 4096, "REMOTE"))).events[0]
    assert (event.extras, event.group, event.kind, event.remote) == (extras, 1, "sliding_window", True)
    same = parse_batch(batch_map(stored_map(extra_keys=extras, group_idx=1, kv_cache_spec_kind="sliding_window",
                                            locality="REMOTE"))).events[0]  # fmt: skip
    assert same == event
    removed = parse_batch(batch_array(["BlockRemoved", [1], "CPU", 1, "REMOTE"])).events[0]
    assert removed == Removed([H], "CPU", 1, True)


def test_a_salt_is_noticed_in_both_places():
    by_position = ["BlockStored", [1], None, [1], 1, None, "GPU", {"cache_salt": "s"}]
    by_name = {**stored_map(), "cache_salt": "s"}
    for raw in (by_position, by_name):
        batch = parse_batch(batch_array(raw))
        assert (batch.events[0].salted, batch.unknown_fields) == (True, 0)
    assert parse_batch(batch_array(by_name)).events[0].lora_name == "sql"


def test_what_is_unknown_is_skipped_and_counted():
    batch = parse_batch(
        pack(
            [
                1.0,
                [["BlockMoved", 1], {"type": "New"}, stored_array("later", "x", 4, "y", 7, 1, 2, 3)],
                0,
                "more",
                "yet",
            ]
        )
    )
    assert (batch.unknown_tags, batch.unknown_fields, len(batch.events)) == (2, 2 + 5 + 3, 1)
    assert parse_batch(pack({"ts": 1, "events": [stored_map(new=1)], "newer": 1})).unknown_fields == 2
    assert parse_batch(batch_array(["AllBlocksCleared", None, 1])).events == [Cleared()]
    assert parse_batch(pack([1.0, [], "east"])).rank is None


def test_pairs_of_tokens_count_by_their_first():
    event = parse_batch(batch_array(["BlockStored", [1], None, [[4, 5], [5, 6]], 2])).events[0]
    assert list(event.token_ids) == [4, 5]


UNREADABLE = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "deep": b"\x91" * 100_000,
    "a list of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a number": pack(7),
    "too few": pack([1.0]),
    "events no list": pack([1.0, 7]),
    "time no number": pack(["x", "y", []]),
    "time too great": pack({"ts": None, "events": []}),
    "event no list": batch_array(7),
    "event without a tag": batch_array([]),
    "map without a tag": batch_array({"block_hashes": [1]}),
    "stored too short": batch_array(["BlockStored", [1], None, [1]]),
    "removed too short": batch_array(["BlockRemoved"]),
    "hashes no list": batch_array(["BlockRemoved", 5]),
    "a hash that is a float": batch_array(["BlockRemoved", [1.5]]),
    "a hash that is true": batch_array(["BlockRemoved", [True]]),
    "an empty hash": batch_array(["BlockRemoved", [b""]]),
    "a hash too long": batch_array(["BlockRemoved", [b"x" * 70_000]]),
    "too many hashes": batch_array(["BlockRemoved", [1] * (BLOCKS_MAX + 1)]),
    "token ids no list": batch_array(["BlockStored", [1], None, "abcd", 4]),
    "a token id below 0": batch_array(["BlockStored", [1], None, [-1], 1]),
    "a token id too great": batch_array(["BlockStored", [1], None, [2**32], 1]),
    "a token id that is text": batch_array(["BlockStored", [1], None, ["a"], 1]),
    "too many tokens": batch_array(["BlockStored", [1], None, [0] * (TOKEN_IDS_MAX + 1), 1]),
    "a block of nothing": batch_array(["BlockStored", [1], None, [1], 0]),
    "a block of less": batch_array(["BlockStored", [1], None, [1], -16]),
    "a block of true": batch_array(["BlockStored", [1], None, [1], True]),
    "a LoRA id of text": batch_array(["BlockStored", [1], None, [1], 1, "x"]),
    "beyond the greatest payload": b"\x90" + b"\x00" * PAYLOAD_BYTES_MAX,
}


@pytest.mark.parametrize("part", [b"\x90", b"\x80", b"\x91\x90", b"\x81\x01\x90"])
def test_what_would_become_a_hundred_times_its_size_is_not_unpacked(part):
    number = (PAYLOAD_BYTES_MAX - 16) // len(part)
    payload = b"\x92\x01\xdd" + number.to_bytes(4, "big") + part * number
    with pytest.raises(Unreadable, match="more lists and maps"):
        parse_batch(payload)


def test_the_greatest_step_is_read():
    tokens = list(range(100_000, 100_000 + TOKEN_IDS_MAX))
    hashes = [random.Random(at).randbytes(32) for at in range(BLOCKS_MAX)]
    (event,) = parse_batch(pack([0.0, [["BlockStored", hashes, None, tokens, 16]]])).events
    assert isinstance(event, Stored)
    assert (len(event.hashes), len(event.token_ids)) == (BLOCKS_MAX, TOKEN_IDS_MAX)


@pytest.mark.parametrize("payload", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_bad_batch_is_one_failure(payload):
    with pytest.raises(Unreadable):
        parse_batch(payload)


def read_or_refuse(payload: bytes) -> None:
    try:
        batch = parse_batch(payload)
    except Unreadable:
        return
    assert all(type(event) in (Stored, Removed, Cleared) for event in batch.events)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
names = st.sampled_from(["type", "BlockStored", "BlockRemoved", "ts", "events", *STORED_NAMES])
shapes = st.recursive(
    scalars | names,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(names, inner, max_size=8),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(shapes)
def test_whatever_it_holds_nothing_else_escapes(value):
    read_or_refuse(pack(value))
    read_or_refuse(pack([1.0, [["BlockStored", value, value, value, value], ["BlockRemoved", value]]]))


def test_changed_bytes_are_read_or_refused():
    rng = random.Random(5)
    good = batch_array(stored_array(), stored_map(), ["BlockRemoved", [1], "CPU"])
    for _ in range(5_000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        read_or_refuse(bytes(bad[: rng.randint(0, len(bad))] if rng.random() < 0.3 else bad))
