"""From engines' hashes to keys."""

import json
from array import array
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest

from terraflow.hints.blocks import block_keys
from terraflow.hints.events.parse import Batch, Cleared, Event, Removed, Stored
from terraflow.hints.events.steps import ended
from terraflow.hints.feed.mapping import Clears, Evicts, Holds, Mapping, MappingState
from terraflow.hints.words import Entry, Tier

GOLDEN = Path(__file__).parents[1] / "golden/fingerprints.json"
VECTORS = json.loads(GOLDEN.read_text("utf-8"))["vectors"]


def stored(names: str, tokens, parent: str | None = None, size: int = 2, **more) -> Stored:
    hashes = [name.encode() for name in names]
    return Stored(hashes, None if parent is None else parent.encode(), array("I", tokens), size, **more)


def removed(names: str, medium: str | None = None, **more) -> Removed:
    return Removed([name.encode() for name in names], medium, **more)


def bring(mapping: Mapping, *events: Event):
    return [write for writes in mapping.pieces(Batch(list(events))) for write in writes]


def keys(*tokens: int, size: int = 2) -> list[bytes]:
    return block_keys(tokens, size)


@pytest.mark.parametrize("vector", [v for v in VECTORS if not v["parent_prefix"]], ids=lambda v: v["name"])
def test_keys_are_those_of_the_golden_vectors(vector):
    expected = [b64decode(one["b64be"]) for one in vector["prefix_hashes"]]
    mapping = Mapping()
    names = [bytes([at]) for at in range(len(expected) + 1)]
    event = Stored(names, None, array("I", vector["tokens"]), vector["block_size"])
    writes = bring(mapping, event)
    assert [hash_ for write in writes for entry in write.entries for hash_ in entry.hashes] == expected


def test_a_chain_goes_on_from_its_parent_with_tokens_counted_from_the_start():
    mapping = Mapping()
    assert bring(mapping, stored("ab", [1, 2, 3, 4])) == [Holds((Entry("", keys(1, 2, 3, 4), [2, 4], Tier.MEMORY),))]
    assert bring(mapping, stored("c", [5, 6], "b")) == [
        Holds((Entry("", keys(1, 2, 3, 4, 5, 6)[2:], [6], Tier.MEMORY),))
    ]
    assert bring(mapping, removed("c")) == [Evicts("", keys(1, 2, 3, 4, 5, 6)[2:])]
    assert len(mapping) == 2


def test_events_that_follow_on_each_other_are_one_entry_and_others_are_not():
    mapping = Mapping()
    (write,) = bring(
        mapping, stored("a", [1, 2]), stored("b", [3, 4], "a"), stored("x", [9, 9]), stored("c", [5, 6], "b")
    )
    assert [len(entry.hashes) for entry in write.entries] == [2, 1, 1]


def test_order_between_storing_removing_and_clearing_is_kept():
    mapping = Mapping()
    writes = bring(mapping, stored("a", [1, 2]), removed("a"), stored("a", [1, 2]), Cleared(), stored("b", [3, 4]))
    assert [type(write) for write in writes] == [Clears, Holds]
    writes = bring(mapping, stored("a", [1, 2]), removed("a"), stored("a", [1, 2]))
    assert [type(write) for write in writes] == [Holds, Evicts, Holds]


def test_an_unknown_parent_is_no_root():
    mapping = Mapping()
    assert bring(mapping, stored("b", [3, 4], "a")) == []
    assert (mapping.orphaned, mapping.counters.orphans) == (True, 1)
    bring(mapping, stored("b", [3, 4], "a"), Cleared())
    assert not mapping.orphaned


def test_a_removed_block_is_no_parent_any_more():
    mapping = Mapping()
    bring(mapping, stored("a", [1, 2]), removed("a"))
    bring(mapping, stored("b", [3, 4], "a"))
    assert mapping.orphaned


def test_adapters_by_name_by_number_and_not_at_all():
    mapping = Mapping(loras={3: "sql"})
    (by_name,) = bring(mapping, stored("a", [1, 2], lora_id=3, lora_name="named"))
    (by_number,) = bring(mapping, stored("b", [1, 2], lora_id=3))
    assert (by_name.entries[0].adapter, by_number.entries[0].adapter) == ("named", "sql")
    assert bring(mapping, stored("cd", [1, 2, 3, 4], lora_id=4)) == []
    assert mapping.counters.lora_unmapped == 2
    assert bring(mapping, removed("a"), removed("b")) == [Evicts("named", keys(1, 2)), Evicts("sql", keys(1, 2))]


@pytest.mark.parametrize(
    ("medium", "tier"),
    [(None, 1), ("GPU", 1), ("CPU", 2), ("cpu", 2), ("DISK", 2), ("REMOTE", 3), ("EXTERNAL", 3), ("new", 3)],
)
def test_media_are_tiers(medium, tier):
    mapping = Mapping()
    (write,) = bring(mapping, stored("a", [1, 2], medium=medium))
    assert write.entries[0].tier == tier
    assert mapping.counters.unknown_media == (medium == "new")


def test_what_is_remote_to_the_engine_is_remote():
    (write,) = bring(Mapping(), stored("a", [1, 2], medium="CPU", remote=True))
    assert write.entries[0].tier == Tier.REMOTE


def test_a_block_stays_while_one_medium_holds_it():
    mapping = Mapping()
    bring(mapping, stored("ab", [1, 2, 3, 4], medium="GPU"))
    (kept,) = bring(mapping, stored("b", [3, 4], "a", medium="CPU"))
    assert kept.entries[0].tier == Tier.MEMORY
    (moved,) = bring(mapping, removed("b", "GPU"))
    assert moved == Holds((Entry("", keys(1, 2, 3, 4)[1:], [4], Tier.OFFLOADED),))
    assert bring(mapping, removed("b", "CPU")) == [Evicts("", keys(1, 2, 3, 4)[1:])]


def test_blocks_without_tokens_are_known_ones_on_another_medium():
    mapping = Mapping()
    bring(mapping, stored("a", [1, 2]))
    assert bring(mapping, stored("ab", [], medium="CPU")) == []
    assert bring(mapping, removed("a")) == [Holds((Entry("", keys(1, 2), [2], Tier.OFFLOADED),))]
    assert mapping.counters.unkeyed == 1


def test_blocks_that_are_more_than_tokens_have_no_key_and_their_children_neither():
    mapping = Mapping()
    extras = [None, [["image-7", 0]], None]
    (write,) = bring(mapping, stored("abc", [1, 2, 3, 4, 5, 6], extras=extras))
    assert write.entries[0].hashes == keys(1, 2)
    assert bring(mapping, stored("d", [7, 8], "c")) == []
    assert (mapping.orphaned, mapping.counters.unkeyed) == (False, 3)
    assert bring(mapping, stored("s", [1, 2], salted=True)) == []
    assert bring(mapping, removed("bcds")) == []


def test_an_adapters_name_among_the_extras_is_no_extra():
    (write,) = bring(Mapping(), stored("a", [1, 2], lora_name="sql", extras=[["sql"]]))
    assert write.entries[0].adapter == "sql"


def test_a_part_block_has_no_key():
    mapping = Mapping()
    (write,) = bring(mapping, stored("ab", [1, 2, 3]))
    assert (write.entries[0].hashes, mapping.counters.unkeyed) == (keys(1, 2), 1)


def test_groups_that_keep_less_than_the_prefix_say_nothing():
    mapping = Mapping()
    bring(mapping, stored("a", [1, 2], group=0, kind="full_attention"))
    assert bring(mapping, stored("a", [1, 2], group=1, kind="sliding_window")) == []
    assert bring(mapping, removed("a", group=1)) == []
    assert bring(mapping, removed("a", group=0)) == [Evicts("", keys(1, 2))]
    assert mapping.counters.other_groups == 2


def test_the_oldest_are_withdrawn_beyond_the_bound_and_their_children_are_no_gap():
    mapping = Mapping(blocks_max=2)
    writes = bring(mapping, stored("abc", [1, 2, 3, 4, 5, 6]))
    assert writes[1:] == [Evicts("", keys(1, 2))]
    bring(mapping, stored("x", [9, 9], "a"))
    assert (mapping.orphaned, mapping.counters.forgotten, len(mapping)) == (False, 1, 2)


def test_unknown_removals_are_counted():
    mapping = Mapping()
    assert bring(mapping, removed("zz")) == []
    assert mapping.counters.unknown_removals == 2


def test_everything_known_can_be_told_again():
    mapping = Mapping(loras={1: "sql"})
    bring(mapping, stored("ab", [1, 2, 3, 4]), stored("c", [1, 2], lora_id=1, medium="CPU"))
    assert mapping.known() == [
        Entry("", keys(1, 2, 3, 4), [2, 4], Tier.MEMORY),
        Entry("sql", keys(1, 2), [2], Tier.OFFLOADED),
    ]


def dumped(mapping):
    return ended(mapping.dump())


def test_it_comes_back_from_what_it_dumped():
    mapping = Mapping(loras={1: "sql"})
    bring(mapping, stored("ab", [1, 2, 3, 4]), stored("c", [1, 2], lora_id=1), stored("s", [1, 2], salted=True))
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(dumped(mapping)), type=MappingState)
    again = Mapping()
    again.restore(state)
    assert again._blocks == mapping._blocks
    assert bring(again, stored("d", [5, 6], "b")) == bring(mapping, stored("d", [5, 6], "b"))


@pytest.mark.parametrize(
    "change",
    [
        {"hashes": b"abcde"},
        {"media": b"\x00\x01"},
        {"names": []},
        {"keys": b"x"},
        {"media": b"\x01"},
        {"media": b"\x09" * 2},
    ],
)
def test_what_it_never_dumped_is_refused(change):
    mapping = Mapping()
    bring(mapping, stored("ab", [1, 2, 3, 4]))
    with pytest.raises(ValueError, match=r"\w"):
        Mapping().restore(msgspec.structs.replace(dumped(mapping), **change))


def test_a_dump_in_steps_is_of_its_first_moment():
    mapping = Mapping()
    bring(mapping, stored("ab", [1, 2, 3, 4]))
    whole, steps = dumped(mapping), mapping.dump()
    next(steps)
    bring(mapping, removed("a"), stored("c", [1, 2]))
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == whole
