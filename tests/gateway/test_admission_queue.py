"""The door's decisions: whose turn it is, who is given up, what is learnt, what is predicted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.gateway.admission_queue import (
    COST_FIRST_S,
    QUANTUM_S,
    RETRY_AFTER_MAX_S,
    WORKLOADS_MAX,
    AdmissionQueue,
    AdmissionRule,
    State,
    Ticket,
)


def queue(running: int = 1, waiting: int = 1_000, tenant: int = 1_000, age_s: float = 5.0) -> AdmissionQueue:
    return AdmissionQueue(AdmissionRule(running_max=running, waiting_max=waiting, tenant_max=tenant, age_s=age_s))


def arrive(door: AdmissionQueue, tenant: str, priority: int = 1, now: float = 0.0, deadline: float = inf) -> Ticket:
    return door.arrive(tenant, f"{tenant}'s", priority, deadline, now)[0]


def teach(door: AdmissionQueue, tenant: str, held_s: float, now: float = 0.0) -> None:
    """One request of the tenant holds its place for so long."""
    door.leave(arrive(door, tenant, now=now - held_s), now)


def served(door: AdmissionQueue, first: Ticket, count: int) -> list[Ticket]:
    """Let one request after the other have the only place."""
    order, running = [], first
    for _ in range(count):
        moved = door.withdraw(running, 0.0)
        [running] = moved
        assert running.state is State.RUNNING
        order.append(running)
    return order


@given(
    costs=st.lists(st.sampled_from([0.004, 0.05, 0.3, 1.0, 7.5, 60.0]), min_size=2, max_size=6),
    count=st.integers(20, 120),
)
def test_no_tenant_with_requests_waiting_gets_more_than_a_request_and_a_turn_ahead_of_another(
    costs: list[float], count: int
) -> None:
    door = queue()
    for tenant, cost_s in enumerate(costs):
        teach(door, str(tenant), cost_s)
    first = arrive(door, "first")
    for tenant in range(len(costs)):
        for _ in range(count):
            arrive(door, str(tenant))
    got = dict.fromkeys(map(str, range(len(costs))), 0.0)
    most = 2 * max(costs) + 2 * QUANTUM_S
    for ticket in served(door, first, count):
        got[ticket.tenant] += ticket.cost_s
        assert max(got.values()) - min(got.values()) <= most


def test_a_tenant_is_full_when_a_newcomer_that_is_last_in_its_order_would_be_turned_away() -> None:
    draw, full = random.Random(1), Counter[bool]()
    for _ in range(300):
        door = queue(running=3, waiting=6, tenant=5)
        for now in range(draw.randrange(16)):
            arrive(door, draw.choice("aaab"), draw.randrange(4), now=float(now))
        for tenant in "abc":
            said = door.full(tenant)
            last = arrive(door, tenant, 3, now=100.0)
            assert said == last.retry_after_s
            full[said is not None] += 1
            door.withdraw(last, 100.0)
    assert min(full[True], full[False]) > 100


def test_a_tenant_with_answers_ten_times_as_long_gets_a_tenth_of_the_places() -> None:
    door = queue()
    teach(door, "short", 0.5)
    teach(door, "long", 5.0)
    first = arrive(door, "first")
    for _ in range(500):
        arrive(door, "short")
        arrive(door, "long")
    got = Counter(ticket.tenant for ticket in served(door, first, 440))
    assert abs(got["long"] - 40) <= 1, got


def test_however_much_one_tenant_has_waiting_anothers_first_is_next_but_one() -> None:
    door = queue()
    first = arrive(door, "many")
    for _ in range(500):
        arrive(door, "many", 0)
    arrive(door, "few", 3)
    assert "few" in [ticket.tenant for ticket in served(door, first, 2)]


def test_who_holds_less_than_its_share_has_the_next_places_until_it_holds_it() -> None:
    """Eight places, two tenants: four each. However dear its requests are, the one that holds none gets the next four,
    then they take turns by cost."""
    door = queue(running=8)
    teach(door, "few", 20.0)
    running = [arrive(door, "many") for _ in range(8)]
    for _ in range(100):
        arrive(door, "many", 0)
    for _ in range(10):
        arrive(door, "few", 3)
    got = [door.withdraw(ticket, 0.0)[0].tenant for ticket in running]
    assert got[:4] == ["few"] * 4
    assert got[4:] == ["many"] * 4


def test_inside_a_tenant_priority_then_arrival() -> None:
    door = queue()
    first = arrive(door, "t")
    waiting = [arrive(door, "t", priority) for priority in (3, 1, 1, 0, 2)]
    order = served(door, first, 5)
    assert order == [waiting[at] for at in (3, 1, 2, 4, 0)]


@pytest.mark.parametrize("priority", [1, 2, 3])
def test_nobody_is_overtaken_by_what_arrives_later_than_its_age(priority: int) -> None:
    door = queue(age_s=5.0)
    first = arrive(door, "t")
    low = arrive(door, "t", priority, now=0.0)
    just = arrive(door, "t", 0, now=priority * 5.0 - 0.1)
    late = arrive(door, "t", 0, now=priority * 5.0 + 0.1)
    assert served(door, first, 3) == [just, low, late]


def test_the_lowest_priority_is_served_within_its_age_though_urgent_ones_never_stop() -> None:
    """One place, a request a second, two urgent ones arrive each second: without ageing the first P3 would wait for
    ever. Three steps of five seconds later nothing that arrives goes before it any more, and what had come by then, 30
    of them, is served in another 15."""
    door, now = queue(age_s=5.0), 0.0
    running = arrive(door, "t", 0)
    low = arrive(door, "t", 3)
    while low.state is State.WAITING:
        now += 1.0
        for _ in range(2):
            arrive(door, "t", 0, now=now)
        [running] = door.withdraw(running, now)
    assert running is low
    assert 28 <= now <= 31, now


def test_a_full_tenant_gives_up_its_own_lowest_and_newest_first() -> None:
    door = queue(tenant=4)
    arrive(door, "t")
    old, new, urgent = arrive(door, "t", 2), arrive(door, "t", 2, now=1.0), arrive(door, "t", 0, now=1.0)
    assert arrive(door, "t", 3, now=1.0).state is State.TENANT_FULL
    ticket, moved = door.arrive("t", "w", 1, inf, 1.0)
    assert (ticket.state, list(moved)) == (State.WAITING, [new])
    assert (new.state, old.state, urgent.state) == (State.TENANT_FULL, State.WAITING, State.WAITING)
    assert arrive(door, "u").state is State.WAITING


def test_a_full_plane_gives_up_of_whom_has_the_most_waiting() -> None:
    door = queue(waiting=4)
    first = arrive(door, "many")
    waiting = [arrive(door, "many", 0) for _ in range(4)]
    ticket, moved = door.arrive("few", "w", 3, inf, 0.0)
    assert (ticket.state, list(moved), waiting[3].state) == (State.WAITING, [waiting[3]], State.SHED)
    second, moved = door.arrive("few", "w", 3, inf, 0.0)
    assert (second.state, list(moved)) == (State.WAITING, [waiting[2]])
    third, moved = door.arrive("few", "w", 3, inf, 0.0)
    assert (third.state, list(moved)) == (State.SHED, [])
    assert arrive(door, "many", 1).state is State.SHED
    assert Counter(one.tenant for one in served(door, first, 4)) == {"many": 2, "few": 2}


def test_a_tenant_full_of_running_requests_gives_up_nobody() -> None:
    door = queue(running=5, tenant=2)
    running = [arrive(door, "t") for _ in range(2)]
    assert arrive(door, "t", 0).state is State.TENANT_FULL
    assert [one.state for one in running] == [State.RUNNING] * 2


def test_deadlines_on_arrival_at_the_place_and_by_the_sweep() -> None:
    door = queue()
    first = arrive(door, "t")
    assert arrive(door, "t", now=1.0, deadline=1.0).state is State.TOO_LATE
    assert arrive(door, "t", now=1.0, deadline=float("nan")).state is State.TOO_LATE
    soon, later = arrive(door, "t", deadline=2.0), arrive(door, "t", deadline=4.0)
    last = arrive(door, "u", 3)
    assert door.next_deadline() == 2.0
    assert list(door.sweep(2.5)) == [soon]
    assert door.next_deadline() == 4.0
    assert set(door.withdraw(first, 5.0)) == {later, last}
    assert [one.state for one in (soon, later, last)] == [State.TOO_LATE, State.TOO_LATE, State.RUNNING]
    assert (door.running, door.waiting) == (1, 0)


def test_what_a_workload_costs_is_what_it_took() -> None:
    door = queue(running=10)
    assert arrive(door, "t").cost_s == COST_FIRST_S
    teach(door, "t", 8.0)
    assert arrive(door, "t").cost_s == 8.0
    for _ in range(60):
        teach(door, "t", 2.0)
    assert 2.0 <= arrive(door, "t").cost_s < 2.02


def test_the_workloads_that_are_remembered_are_bounded() -> None:
    door = queue(running=10)
    for number in range(WORKLOADS_MAX + 100):
        ticket, _ = door.arrive("t", str(number), 1, inf, 0.0)
        door.leave(ticket, 1.0)
    assert len(door._costs) == WORKLOADS_MAX


def test_retry_after_is_what_the_queue_takes_to_drain() -> None:
    """Four places, two seconds each: two requests a second. The tenant's 19 waiting and one more take ten."""
    door = queue(running=4, tenant=23)
    teach(door, "t", 2.0)
    for _ in range(23):
        assert arrive(door, "t").retry_after_s is None
    shed = arrive(door, "t")
    assert (shed.state, shed.retry_after_s) == (State.TENANT_FULL, 10)


def test_before_anything_is_measured_retry_after_is_a_second_and_nobody_is_shed_early() -> None:
    door = queue(tenant=2)
    arrive(door, "t")
    assert arrive(door, "t", deadline=0.001).state is State.WAITING
    assert arrive(door, "t").retry_after_s == 1


def test_retry_after_has_a_bound() -> None:
    door = queue(tenant=2)
    teach(door, "t", 600.0)
    arrive(door, "t")
    arrive(door, "t")
    assert arrive(door, "t").retry_after_s == RETRY_AFTER_MAX_S


def test_who_cannot_have_its_place_in_time_is_not_kept_waiting_for_it() -> None:
    """One place, a second each: the third in its line would have it in three seconds."""
    door = queue()
    teach(door, "t", 1.0)
    first = arrive(door, "t")
    for _ in range(2):
        assert arrive(door, "t").state is State.WAITING
    shed = arrive(door, "t", deadline=2.9)
    assert (shed.state, shed.retry_after_s) == (State.SHED, 3)
    assert arrive(door, "t", deadline=3.1).state is State.WAITING
    assert arrive(door, "t", 0, deadline=2.0).state is State.WAITING
    assert arrive(door, "other", deadline=2.1).state is State.WAITING
    assert [ticket.tenant for ticket in served(door, first, 3)].count("other") == 1


def test_another_limit_lets_in_as_many_as_it_has_room_for_and_throws_nobody_out() -> None:
    door = queue(running=4)
    running = [arrive(door, "t") for _ in range(4)]
    waiting = [arrive(door, "t") for _ in range(4)]
    assert list(door.set_limit(2, 0.0)) == []
    assert (door.running, door.limit) == (4, 2)
    for ticket in running[:2]:
        assert list(door.leave(ticket, 1.0)) == []
    assert list(door.set_limit(3, 1.0)) == [waiting[0]]
    assert list(door.set_limit(400, 1.0)) == [waiting[1]]
    assert door.limit == 4
    door.set_limit(0, 1.0)
    assert door.limit == 1


def test_a_place_is_given_back_once_however_often_it_is_said() -> None:
    door = queue()
    ticket = arrive(door, "t")
    waiting = [arrive(door, "t") for _ in range(3)]
    assert list(door.leave(ticket, 1.0)) == waiting[:1]
    for again in (door.leave, door.withdraw):
        assert list(again(ticket, 1.0)) == []
    assert (door.running, door.waiting) == (1, 2)


def simulate(door: AdmissionQueue, rates: dict[str, float], hold_s: dict[str, float], seconds: float) -> Counter[str]:
    """Poisson arrivals by tenant, each holding its place for an exponential time; how many of each got one, and
    (under the tenant's name with a `!`) how many were turned away."""
    draw, got = random.Random(7), Counter[str]()
    arrivals = sorted((t, tenant) for tenant, rate in rates.items() for t in _poisson(draw, rate, seconds))
    ends: list[tuple[float, int, Ticket]] = []

    def run(tickets: Sequence[Ticket], now: float) -> None:
        for ticket in tickets:
            if ticket.state is State.RUNNING:
                got[ticket.tenant] += 1
                ends.append((now + draw.expovariate(1 / hold_s[ticket.tenant]), ticket.number, ticket))
            else:
                got[ticket.tenant + "!"] += 1

    for now, tenant in arrivals:
        while ends and min(ends)[0] <= now:
            end = min(ends)
            ends.remove(end)
            run(door.leave(end[2], end[0]), end[0])
        ticket, moved = door.arrive(tenant, "w", 1, now + 30, now)
        run(moved, now)
        if ticket.state is not State.WAITING:
            run((ticket,), now)
    return got


def _poisson(draw: random.Random, rate: float, seconds: float) -> list[float]:
    times, now = [], 0.0
    while (now := now + draw.expovariate(rate)) < seconds:
        times.append(now)
    return times


def test_at_ten_times_the_load_who_stays_within_its_share_is_served() -> None:
    """20 places of 0.2 s serve 100 a second. Three tenants send 15 a second each, a fourth 955."""
    door = queue(running=20, waiting=64, tenant=40)
    rates = {"a": 15.0, "b": 15.0, "c": 15.0, "flood": 955.0}
    got = simulate(door, rates, dict.fromkeys(rates, 0.2), seconds=40)
    for tenant in "abc":
        assert got[tenant + "!"] == 0, got
    assert got["a"] + got["b"] + got["c"] + got["flood"] >= 0.95 * 100 * 40


def test_with_equal_demand_places_are_shared_by_time_not_by_number() -> None:
    door = queue(running=20, waiting=200, tenant=60)
    got = simulate(door, {"short": 300.0, "long": 100.0}, {"short": 0.1, "long": 0.4}, seconds=60)
    shares = got["short"] * 0.1, got["long"] * 0.4
    assert shares[0] / shares[1] == pytest.approx(1.0, abs=0.12), got
