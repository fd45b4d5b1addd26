"""The choice of a replica, and when one rests: values in, a place out."""

from __future__ import annotations

from collections import Counter

import pytest

from terraflow.core.affinity import member_of
from terraflow.core.reasons import Lookup
from terraflow.ports.hints import Hint, Prefix, Ranked
from terraflow.ports.upstream import Failure
from terraflow.providers.replicas import (
    AFFINITY_TOKENS,
    BUSY_SLACK,
    FAULTS_MAX,
    REST_MAX_S,
    UNREACHED,
    Seat,
    another,
    choose,
)

NOW = 100.0


class Door:
    def __init__(self, permitted: bool = True) -> None:
        self.permitted = permitted


def seats(count: int = 3) -> list[Seat]:
    return [Seat(f"r{at}", Door()) for at in range(count)]


def prefix(*hashes: str, tokens: int = 1_000) -> Prefix:
    blocks = [name.encode().ljust(8) for name in hashes]
    return Prefix(tenant="t", model="m", scheme="s", hashes=blocks, counts=[512] * len(blocks), tokens=tokens)


def ranking(*ranked: tuple[str, int], reason: Lookup = Lookup.PREFIX_MATCH) -> Hint:
    return Hint(reason=reason, ranked=tuple(Ranked(replica, float(n), n) for replica, n in ranked))


A = prefix("a")


def test_the_first_of_the_ranking_that_may_be_chosen_is() -> None:
    three, hint = seats(), ranking(("r9", 900), ("r2", 800), ("r1", 700))
    assert choose(three, hint, A, (), NOW) == 2
    assert choose(three, hint, A, ("r2",), NOW) == 1
    three[2].door.permitted = False
    assert choose(three, hint, A, (), NOW) == 1
    three[1].rests_until = NOW + 1
    assert choose(three, hint, A, (), NOW) == 0


def test_a_rank_stands_for_its_engine_unless_it_is_a_member_itself() -> None:
    assert choose(seats(), ranking(("r1/dp3", 900)), A, (), NOW) == 1
    ranks = [Seat("r1", Door()), Seat("r1/dp0", Door()), Seat("r1/dp1", Door())]
    assert choose(ranks, ranking(("r1/dp1", 900)), A, (), NOW) == 2
    names = ("a/dp0", "a/dp", "a/dpx", "a/b", "/dp1", "b/dp1")
    assert [member_of(name, {"b/dp1"}) for name in names] == ["a", "a/dp", "a/dpx", "a/b", "/dp1", "b/dp1"]


def test_an_affinity_hint_promises_nothing_and_is_followed() -> None:
    hint = ranking(("r2", 0), reason=Lookup.AFFINITY_HINT)
    assert choose(seats(), hint, A, (), NOW) == 2


def test_whoever_is_chosen_for_its_cache_gives_way_when_it_is_far_busier() -> None:
    three = seats()
    three[2].in_flight = BUSY_SLACK
    hint = ranking(("r2", 900))
    assert choose(three, hint, A, (), NOW) == 2
    three[2].in_flight += 1
    assert choose(three, hint, A, (), NOW) != 2


def test_a_prompt_has_two_replicas_and_takes_the_less_busy() -> None:
    for name in "abcdef":
        many = seats(8)
        first = choose(many, None, prefix(name), (), NOW)
        assert choose(many, None, prefix(name), (), NOW) == first
        many[first].in_flight = 1
        second = choose(many, None, prefix(name), (), NOW)
        many[second].in_flight = 2
        assert choose(many, None, prefix(name), (), NOW) == first != second


def test_prompts_spread_and_only_those_of_a_lost_replica_move() -> None:
    before = {at: choose(seats(8), None, prefix(f"p{at}"), (), NOW) for at in range(800)}
    assert all(60 < count < 150 for count in Counter(before.values()).values())
    fewer = seats(8)
    fewer[3].door.permitted = False
    after = {at: choose(fewer, None, prefix(f"p{at}"), (), NOW) for at in range(800)}
    assert all(after[at] == place for at, place in before.items() if place != 3)
    assert 3 not in after.values()


def test_conversations_with_one_system_prompt_are_told_apart_and_their_turns_are_not() -> None:
    shared = ["sys"] * (AFFINITY_TOKENS // 512 - 1)
    places = {choose(seats(8), None, prefix(*shared, f"talk{at}"), (), NOW) for at in range(80)}
    assert len(places) == 8
    turns = {choose(seats(8), None, prefix(*shared, "talk", *["more"] * n), (), NOW) for n in range(5)}
    assert len(turns) == 1


def test_a_prompt_of_which_nothing_is_known_goes_to_the_least_busy() -> None:
    three = seats()
    three[0].in_flight, three[1].in_flight = 2, 1
    assert choose(three, None, None, (), NOW) == 2
    assert choose(three, Hint(reason=Lookup.NO_HINT), prefix(), (), NOW) == 2


def test_when_all_rest_the_one_that_rests_the_shortest_is_tried_and_first_one_that_has_not_failed() -> None:
    three = seats()
    for at, seat in enumerate(three):
        seat.rests_until = NOW + 3 - at
    assert choose(three, None, A, (), NOW) == 2
    assert choose(three, None, A, ("r2",), NOW) == 1
    for seat in three:
        seat.door.permitted = False
    assert choose(three, None, A, (), NOW) == -1


@pytest.mark.parametrize("failure", FAULTS_MAX)
def test_a_replica_rests_after_its_faults_and_longer_each_time(failure: Failure) -> None:
    seat = seats(1)[0]
    for _ in range(FAULTS_MAX[failure] - 1):
        seat.failed(failure, NOW, None)
        assert seat.rests_until <= NOW
    rests = []
    for _ in range(8):
        seat.failed(failure, NOW, None)
        rests.append(seat.rests_until - NOW)
    assert rests == sorted(rests)
    assert rests[0] >= (10.0 if failure in UNREACHED else 1.0)
    assert rests[-1] == REST_MAX_S
    seat.succeeded()
    assert (seat.faults, seat.rests_until) == (0, 0.0)


def test_a_replica_that_asks_for_time_gets_it_within_bounds() -> None:
    seat = seats(1)[0]
    for _ in range(3):
        seat.failed(Failure.RATE_LIMITED, NOW, 5.0)
    assert seat.rests_until == NOW + 5.0
    seat.failed(Failure.RATE_LIMITED, NOW, 5_000.0)
    assert seat.rests_until == NOW + REST_MAX_S


def test_another_replica_is_one_that_could_take_the_call_now() -> None:
    three = seats()
    assert another(three, three[0], (), NOW)
    assert not another(three, three[0], ("r1", "r2"), NOW)
    three[1].rests_until = NOW + 1
    three[2].door.permitted = False
    assert not another(three, three[0], (), NOW)
