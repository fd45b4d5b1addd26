"""The limits that are found from measured times, over simulated servers with a clock of their own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.gateway.adaptive_limit import (
    CAPABILITY_WINDOW_S,
    SAMPLES_MIN,
    CapabilityLimit,
    LimitRule,
    PlaneLimit,
    next_limit,
)

RULE = LimitRule(floor=4, ceiling=256)


@given(
    limit=st.integers(4, 256), peak=st.integers(0, 300), excess=st.floats(0, 100), rule=st.just(RULE) | st.just(RULE)
)
def test_a_limit_stays_within_its_bounds_and_moves_the_right_way(
    limit: int, peak: int, excess: float, rule: LimitRule
) -> None:
    after = next_limit(rule, limit, peak, excess)
    assert rule.floor <= after <= rule.ceiling
    assert after <= limit if excess >= 0.8 else after >= limit


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    assert next_limit(RULE, 100, 79, 0.1) == 100
    assert next_limit(RULE, 100, 80, 0.1) == 201
    assert next_limit(RULE, 100, 80, 0.7) == 126
    assert next_limit(RULE, 100, 100, 0.9) == 100


class Server:
    """Calls that share a server: each takes its own time, and longer by the factor by which more than `fits` are in
    flight when it comes. `demand` says how many would run if they could."""

    def __init__(self, limit: CapabilityLimit, fits: int, seed: int = 1) -> None:
        self.limit, self.fits, self.now, self.slow = limit, fits, 0.0, 1.0
        self.draw = random.Random(seed)
        self.ends: list[tuple[float, float, int]] = []
        self.limits: list[int] = []

    def crowd(self) -> float:
        return max(1.0, (len(self.ends) + 1) / self.fits) * self.slow

    def start(self, streams: bool) -> None:
        tokens = int(10 ** self.draw.uniform(0.7, 3.3))
        first_s = 0.3 * self.draw.uniform(0.7, 1.3) * self.crowd()
        took_s = first_s if streams else first_s + 0.02 * tokens * self.crowd()
        heapq.heappush(self.ends, (self.now + took_s, self.now, tokens))

    def run(self, seconds: float, demand: int, *, streams: bool = True) -> list[int]:
        until = self.now + seconds
        limits = []
        while self.now < until:
            while len(self.ends) < min(demand, self.limit.limit):
                self.start(streams)
            self.now, started, tokens = heapq.heappop(self.ends)
            if streams:
                self.limit.began(started, len(self.ends) + 1, self.now)
            else:
                self.limit.answered(started, tokens, len(self.ends) + 1, self.now)
            limits.append(self.limit.limit)
        return limits


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "whole answers"])
def test_it_finds_what_fits_and_lets_a_queue_of_one_more_stand(streams: bool) -> None:
    """40 fit. Twice as long is tolerated, which is 80; between 40 and 110 nothing is lost and nobody waits long."""
    server = Server(CapabilityLimit(RULE, 0.0), fits=40)
    server.run(60, demand=30, streams=streams)
    assert server.limit.limit == 256
    server.run(60, demand=250, streams=streams)
    found = server.run(120, demand=250, streams=streams)
    late = found[len(found) // 2 :]
    assert min(late) >= 40 and mean(late) < 110


@pytest.mark.parametrize("streams", [True, False], ids=["streams", "whole answers"])
def test_answers_of_very_different_lengths_are_no_reason_to_cut(streams: bool) -> None:
    """From 5 tokens to 2 000, 0.4 to 40 seconds, and never more at once than fit."""
    server = Server(CapabilityLimit(RULE, 0.0), fits=100)
    assert min(server.run(600, demand=95, streams=streams)) >= 95


def test_it_is_back_within_two_seconds_after_the_crowd_has_gone() -> None:
    """200 at once, on a server that has lost four fifths of its speed; then it has it again, and 30 come at a time."""
    server = Server(CapabilityLimit(RULE, 0.0), fits=40)
    server.run(30, demand=30)
    server.slow = 5.0
    server.run(20, demand=200)
    assert server.limit.limit <= 8
    server.slow = 1.0
    last_slow_end = max(end for end, _, _ in server.ends)
    server.run(last_slow_end - server.now, demand=30)
    server.run(2.0, demand=30)
    assert server.limit.limit >= 30


def test_a_model_that_has_become_slower_for_good_is_not_held_at_the_floor() -> None:
    server = Server(CapabilityLimit(RULE, 0.0), fits=100)
    server.run(30, demand=60)
    server.slow = 6.0
    server.run(30, demand=60)
    server.run(120, demand=60)
    assert server.limit.limit >= 55


def test_a_provider_that_says_so_is_given_less_once_for_all_that_were_in_flight() -> None:
    limit = CapabilityLimit(RULE, 0.0)
    for _ in range(50):
        limit.overloaded(started=9.0, in_flight=50, now=10.0)
    assert limit.limit == 35
    limit.overloaded(started=10.1, in_flight=35, now=10.2)
    assert limit.limit == 24
    for number in range(40):
        limit.overloaded(started=11.0 + number, in_flight=4, now=11.5 + number)
    assert limit.limit == RULE.floor


def test_few_samples_say_nothing() -> None:
    limit = CapabilityLimit(RULE, 0.0)
    for number in range(SAMPLES_MIN * 3):
        limit.began(number, 1, number + 0.1)
    for number in range(SAMPLES_MIN - 1):
        limit.began(100.0 + number, 200, 100.0 + number + 50 * CAPABILITY_WINDOW_S)
    assert limit.limit == 256


@pytest.mark.parametrize("old", [SAMPLES_MIN - 1, SAMPLES_MIN], ids=["too few", "enough"])
def test_samples_of_a_crowd_long_ago_do_not_count(old: int) -> None:
    """They came within one window, which they did not end; what comes much later is as quick as ever."""
    limit = CapabilityLimit(RULE, 0.0)
    for number in range(SAMPLES_MIN * 3):
        limit.began(number, 1, number + 0.1)
    for _ in range(old):
        limit.began(SAMPLES_MIN, 200, SAMPLES_MIN * 3 - 0.8)
    for number in range(SAMPLES_MIN):
        limit.began(1000.0 + number, 1, 1000.1 + number)
    assert limit.limit == 256


def work(
    limit: PlaneLimit, now: float, seconds: float, demand: int, own: Callable[[int], float], provider_s: float
) -> list[tuple[float, int]]:
    """Requests come and go, `demand` at a time if they may; `own` says how long the plane itself takes with so many in
    its hands. The instants and the limit at each end."""
    draw, running, ends, own_ends = random.Random(3), 0, list[tuple[float, float]](), list[float]()
    until, seen = now + seconds, list[tuple[float, int]]()
    while now < until:
        while running < min(demand, limit.limit):
            own_ends = [end for end in own_ends if end > now]
            own_s = own(len(own_ends) + 1)
            own_ends.append(now + own_s)
            heapq.heappush(ends, (now + own_s + draw.expovariate(1 / provider_s), own_s))
            running += 1
        now, own_s = heapq.heappop(ends)
        limit.left(own_s, running, now)
        running -= 1
        seen.append((now, limit.limit))
    return seen


def one_processor(working: int) -> float:
    """Half a millisecond each, one at a time."""
    return 0.0005 * working


def test_a_plane_whose_models_are_slow_is_never_limited_whatever_the_length_of_answers() -> None:
    seen = work(PlaneLimit(LimitRule(floor=32, ceiling=256), 96), 0.0, 60, 256, one_processor, provider_s=2.0)
    assert {limit for _, limit in seen} == {256}


def test_a_plane_that_is_busy_itself_lets_in_what_it_can_work_on() -> None:
    """With a model that answers at once all 256 would wait for the processor, 128 ms each."""
    seen = work(PlaneLimit(LimitRule(floor=32, ceiling=256), 96), 0.0, 20, 256, one_processor, provider_s=0.005)
    late = [limit for now, limit in seen if now > 5]
    assert min(late) >= 60 and max(late) <= 130, mean(late)


def test_a_plane_is_back_within_two_seconds_after_a_slow_disk() -> None:
    limit = PlaneLimit(LimitRule(floor=32, ceiling=256), 96)
    work(limit, 0.0, 10, 250, lambda _: 3.0, provider_s=1.0)
    assert limit.limit < 140
    seen = work(limit, 10.0, 10, 250, one_processor, provider_s=1.0)
    back = next(now for now, found in seen if found >= 250)
    assert back - 10.0 <= 2.0
