"""The assignment memory: loads, what counts as held and for how long, and that it stays bounded."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding import assigned as module
from terraflow.hints.deciding.assigned import DEPTHS, Assigned, Match
from terraflow.hints.words import BLOCKS_MAX, Scope

SCOPE = Scope("t", "m", "s")
CHAIN = block_keys(range(16 * 40))
COUNTS = [16] * 40


def held(memory: Assigned, depth: int = 40, now: float = 0.0, **more: str) -> dict[str, tuple[int, int]]:
    """Blocks and tokens by replica."""
    rows = memory.held(SCOPE, more.get("adapter", ""), CHAIN[:depth], COUNTS[:depth], now)
    return {row.replica: (row.blocks, row.tokens) for row in rows}


def empty(memory: Assigned) -> bool:
    """Nothing of any request is left, but for loads."""
    return not (memory._holders or memory._flying or memory._sent)


def test_depths_rise_to_the_longest_chain() -> None:
    assert list(DEPTHS[:64]) == list(range(1, 65))
    assert all(0 < after - before <= max(1, before / 16) for before, after in pairwise(DEPTHS))
    assert DEPTHS[-1] >= BLOCKS_MAX and len(DEPTHS) < 200


def test_what_was_sent_counts_as_held() -> None:
    memory = Assigned()
    memory.sent(SCOPE, "", "r1", CHAIN, 640, 0.0)
    memory.sent(SCOPE, "", "r2", CHAIN[:10], 160, 0.0)
    assert held(memory) == {"r1": (40, 640), "r2": (10, 160)}
    assert held(memory, 7) == {"r1": (7, 112), "r2": (7, 112)}
    assert held(memory, adapter="x") == {}
    assert memory.held(Scope("t", "m", "z"), "", CHAIN, COUNTS, 0.0) == []
    assert memory.held(SCOPE, "", block_keys(range(99, 999)), [16] * 56, 0.0) == []


@pytest.mark.parametrize("depth", [1, 2, 39, 64, 65, 67, 68, 100, 399])
def test_two_requests_that_part_are_told_at_most_a_sixteenth_too_short(depth: int) -> None:
    memory = Assigned()
    long = block_keys(range(16 * 400))
    memory.sent(SCOPE, "", "r1", [*long[:depth], b"own", b"more"], 640, 0.0)
    (row,) = memory.held(SCOPE, "", long, [16] * 400, 0.0)
    assert 15 * depth / 16 - 1 <= row.blocks <= depth
    assert row.tokens == 16 * row.blocks


def test_a_lost_replica_holds_nothing_and_is_as_busy_as_before() -> None:
    memory = Assigned(linger_s=2.0)
    for replica in ("r1", "r1", "r2"):
        memory.sent(SCOPE, "", replica, CHAIN, 640, 0.0)
    memory.sent(Scope("t", "other", "s"), "", "r1", CHAIN, 640, 0.0)
    memory.ended(SCOPE, "", "r1", CHAIN, True, 0.0)
    memory.lost("t", "m", "r1")
    assert held(memory) == {"r2": (40, 640)}
    assert memory.in_flight(SCOPE, "r1") == 1
    assert [row.replica for row in memory.held(Scope("t", "other", "s"), "", CHAIN, COUNTS, 0.0)] == ["r1"]
    memory.ended(SCOPE, "", "r1", CHAIN, True, 1.0)
    assert held(memory, now=1.0) == {"r2": (40, 640)}
    memory.sent(SCOPE, "", "r1", CHAIN, 640, 1.0)
    assert set(held(memory, now=1.0)) == {"r1", "r2"}


def test_what_ended_is_held_for_a_moment_and_what_failed_is_not() -> None:
    memory = Assigned(linger_s=2.0)
    memory.sent(SCOPE, "", "r1", CHAIN, 640, 0.0)
    memory.sent(SCOPE, "", "r2", CHAIN, 640, 0.0)
    memory.ended(SCOPE, "", "r1", CHAIN, True, 5.0)
    memory.ended(SCOPE, "", "r2", CHAIN, False, 5.0)
    assert set(held(memory, now=6.9)) == {"r1"}
    assert held(memory, now=7.0) == {}
    assert empty(memory)


def test_two_of_a_kind_are_two() -> None:
    memory = Assigned()
    for _ in range(2):
        memory.sent(SCOPE, "", "r1", CHAIN, 640, 0.0)
    memory.ended(SCOPE, "", "r1", CHAIN, False, 1.0)
    assert (set(held(memory)), memory.in_flight(SCOPE, "r1"), memory._loads[SCOPE, "r1"].tokens) == ({"r1"}, 1, 640)
    memory.ended(SCOPE, "", "r1", CHAIN, False, 1.0)
    memory.ended(SCOPE, "", "r1", CHAIN, False, 1.0)
    assert (held(memory), memory.in_flight(SCOPE, "r1"), memory._loads[SCOPE, "r1"].tokens) == ({}, 0, 0)


def test_what_never_ends_is_forgotten() -> None:
    memory = Assigned(flight_max_s=100.0, hold_max_s=10.0)
    memory.sent(SCOPE, "", "r1", CHAIN, 640, 0.0)
    assert held(memory, now=9.9) and not held(memory, now=10.0)
    assert memory.in_flight(SCOPE, "r1") == 1
    assert held(memory, now=100.0) == {}
    assert memory.in_flight(SCOPE, "r1") == 0
    memory.ended(SCOPE, "", "r1", CHAIN, True, 101.0)
    assert empty(memory)


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOADS_MAX", 8)
    monkeypatch.setattr(module, "SCOPES_MAX", 4)
    memory = Assigned(requests_max=10)
    for number in range(200):
        scope = Scope("t", f"m{number}", "s")
        memory.join(scope, ["r1"])
        memory.sent(scope, "", "r1", [b"%d" % number, *CHAIN], 100, 0.0)
    assert len(memory._sent) == 10 and len(memory._flying) == 10
    assert len(memory._holding) <= 40 and len(memory._holders) <= 40
    assert len(memory._loads) <= 8 and len(memory._members) == 4
    assert memory._marks == sum(len(marks) for marks in memory._holders.values())
    for number in range(200):
        memory.ended(Scope("t", f"m{number}", "s"), "", "r1", [b"%d" % number, *CHAIN], False, 0.0)
    memory.held(SCOPE, "", CHAIN, COUNTS, 61.0)
    assert empty(memory)


def test_its_marks_are_bounded() -> None:
    memory = Assigned(marks_max=1_000)
    for number in range(200):
        memory.sent(SCOPE, "", "r1", [b"%d" % number, *CHAIN], 100, 0.0)
    assert memory._marks < 1_000 + len(CHAIN) + 1
    assert memory.in_flight(SCOPE, "r1") == 200


def test_load_is_what_is_in_flight_and_a_little_of_what_was() -> None:
    memory = Assigned()
    memory.sent(SCOPE, "", "r1", CHAIN, 1_000, 0.0)
    assert memory.load(SCOPE, "r1", 0.0) == 1_000
    memory.ended(SCOPE, "", "r1", CHAIN, True, 10.0)
    assert memory.load(SCOPE, "r1", 10.0) == 100
    assert memory.load(SCOPE, "r1", 610.0) == 50
    assert memory.load(SCOPE, "r2", 0.0) == 0
    assert memory.lesser(SCOPE, "r1", "r2", 700.0) == "r2"
    assert memory.lesser(SCOPE, "r3", "r2", 700.0) == "r3"


def test_who_joined() -> None:
    memory = Assigned()
    memory.join(SCOPE, ["b", "a", "b"])
    assert memory.members(SCOPE) == ("a", "b")
    memory.join(SCOPE, ["c"])
    assert memory.members(SCOPE) == ("c",)
    memory.join(SCOPE, [])
    assert memory.members(SCOPE) == ()


def _preferred(memory: Assigned, *matches: Match) -> str:
    return memory.preferred(SCOPE, "", CHAIN, matches, "other", 0.0)


def test_a_conversation_moves_only_from_a_long_queue() -> None:
    memory = Assigned()
    matches = (Match("r1", 40, 640), Match("r2", 10, 160))
    memory.sent(SCOPE, "", "r1", [b"else"], 72_000, 0.0)
    assert _preferred(memory, *matches) == "r1"
    memory.sent(SCOPE, "", "r1", [b"else"], 2_000, 0.0)
    assert _preferred(memory, *matches) == "r2"
    memory.sent(SCOPE, "", "r1", [b"else"], 10_000, 0.0)
    memory.sent(SCOPE, "", "r2", [b"else"], 80_000, 0.0)
    assert _preferred(memory, *matches) == "other"


def test_a_shared_prompt_moves_when_waiting_costs_more_than_what_it_saves() -> None:
    memory = Assigned()
    for number in range(2):
        memory.sent(SCOPE, "", "r1", [*CHAIN, b"%d" % number], 700, 0.0)
    match = Match("r1", 40, 640)
    assert _preferred(memory, match) == "r1"
    memory.sent(SCOPE, "", "r1", [b"else"], 8, 0.0)
    assert _preferred(memory, match) == "r1"
    memory.sent(SCOPE, "", "r1", [b"else"], 1, 0.0)
    assert _preferred(memory, match) == "other"


def test_a_match_that_ranks_first_stays_so_unless_another_is_less_busy() -> None:
    """What ranks behind although it is longer may be of an engine that is lost, or on a disk."""
    memory = Assigned()
    matches = (Match("r1", 10, 160), Match("lost", 40, 640))
    assert _preferred(memory, *matches) == "r1"
    memory.sent(SCOPE, "", "r1", [b"else"], 100, 0.0)
    memory.sent(SCOPE, "", "lost", [b"else"], 100, 0.0)
    assert _preferred(memory, *matches) == "r1"
    memory.sent(SCOPE, "", "r1", [b"else"], 1, 0.0)
    assert _preferred(memory, *matches) == "lost"


def test_a_rank_is_as_busy_as_the_engine_that_it_is_of() -> None:
    memory = Assigned()
    memory.join(SCOPE, ["r1", "r2", "r2/dp0"])
    for replica in ("r1", "r2"):
        memory.sent(SCOPE, "", replica, CHAIN, 1_000, 0.0)
    assert [memory.load(SCOPE, name, 0.0) for name in ("r1/dp3", "r2/dp1", "r2/dp0", "r3/dp0")] == [1_000, 1_000, 0, 0]


@pytest.mark.parametrize("blocks", [4, 40])
def test_a_burst_of_one_prefix_does_not_scatter(blocks: int) -> None:
    """Forty requests, each with the prefix and a block of its own, before anything is reported."""
    memory = Assigned()
    first = [*CHAIN[:blocks], b"first"]
    memory.sent(SCOPE, "", "r1", first, 16 * len(first), 0.0)
    for number in range(40):
        own = [*CHAIN[:blocks], b"own %d" % number]
        (row,) = memory.held(SCOPE, "", own, [16] * len(own), 0.0)
        chosen = memory.preferred(SCOPE, "", own, [Match(row.replica, row.blocks, row.tokens)], "other", 0.0)
        assert chosen == "r1"
        memory.sent(SCOPE, "", "r1", own, 16 * len(own) - row.tokens, 0.0)


def _sound(memory: Assigned) -> None:
    """Everything that is counted is what is there."""
    for (scope, replica), load in memory._loads.items():
        mine = [flight for flight in memory._sent.values() if flight.key[0] == scope and flight.key.replica == replica]
        assert (load.requests, load.tokens) == (len(mine), sum(flight.tokens for flight in mine))
    held: Counter[tuple[bytes, str]] = Counter()
    for flight in memory._holding:
        held.update((mark, flight.key.replica) for mark in flight.marks)
    counted = Counter(
        {
            (mark, name): count
            for marks in memory._holders.values()
            for mark, by in marks.items()
            for name, count in by.items()
        }
    )
    assert counted == held
    assert memory._marks == held.total()
    assert sorted(map(id, memory._sent.values())) == sorted(id(one) for row in memory._flying.values() for one in row)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_what_is_counted_is_there(seed: int) -> None:
    luck = Random(seed)
    memory = Assigned(requests_max=6, marks_max=60, flight_max_s=20.0, hold_max_s=8.0, linger_s=2.0)
    now = 0.0
    for _ in range(80):
        now += luck.choice((0.0, 0.5, 3.0, 9.0))
        replica, hashes = luck.choice(("r1", "r2")), CHAIN[: luck.choice((0, 1, 3, 20))]
        match luck.randrange(3):
            case 0:
                memory.sent(SCOPE, "", replica, hashes, luck.choice((-5, 0, 100)), now)
            case 1:
                memory.ended(SCOPE, "", replica, hashes, luck.random() < 0.5, now)
            case _:
                rows = memory.held(SCOPE, "", CHAIN[:30], COUNTS[:30], now)
                assert all(1 <= row.blocks <= 20 and row.tokens == 16 * row.blocks for row in rows)
        _sound(memory)
    memory.held(SCOPE, "", CHAIN, COUNTS, now + 30.0)
    assert empty(memory) and memory._marks == 0
