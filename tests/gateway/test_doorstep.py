"""The step before the door: how many begin in a turn of the loop, who waits, and who is sent away when."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable

import pytest

from terraflow.gateway.doorstep import Doorstep, Lines, StepRule, Waiting
from tests.storage.makers import SetClock

RULE = StepRule(waiting_max=6, wait_s=0.1, turn_s=0.01)


def joined(lines: Lines, tenants: str, now: float = 0.0) -> list[Waiting]:
    return [lines.join(tenant, now)[0] for tenant in tenants]


def tenants_of(moved: list[Waiting]) -> str:
    return "".join(one.tenant for one in moved)


def test_tenants_take_turns_and_a_tenant_keeps_its_order() -> None:
    lines = Lines(RULE)
    flood = joined(lines, "aaaa")
    joined(lines, "bc")
    turns = [lines.go_on(2, 0.0) for _ in range(3)]
    assert [tenants_of(turn) for turn in turns] == ["ab", "ca", "aa"]
    assert [one for turn in turns for one in turn if one.tenant == "a"] == flood
    assert all(one.goes_on for one in flood) and lines.waiting == 0 and lines.go_on(2, 0.0) == []


def test_where_there_is_no_room_the_tenant_with_the_most_loses_its_oldest() -> None:
    lines = Lines(RULE)
    first, *_ = joined(lines, "aaabbc")
    newcomer, gone = lines.join("c", 0.0)
    assert gone is first and first.goes_on is False
    assert lines.waiting == RULE.waiting_max and newcomer.goes_on is None


def test_nobody_waits_longer_than_the_bound() -> None:
    lines = Lines(RULE)
    joined(lines, "ab")
    joined(lines, "aac", 0.05)
    assert lines.too_late(0.1) == []
    assert tenants_of(lines.too_late(0.101)) == "ab" and lines.waiting == 3
    assert tenants_of(lines.too_late(0.151)) == "aac" and lines.waiting == 0


def test_nobody_begins_to_wait_who_would_wait_for_too_long() -> None:
    lines = Lines(RULE)
    joined(lines, "aaaab")
    assert not lines.hopeless("a"), "nothing is known of the pace"
    for _ in range(50):
        joined(lines, "a")
        lines.go_on(1, 0.02)
    while lines.waiting:
        lines.go_on(1, 0.02)
    joined(lines, "aab")
    assert not lines.hopeless("a"), "the third of one line waits for two of each, 80 ms"
    joined(lines, "a")
    assert lines.hopeless("a") and not lines.hopeless("b") and not lines.hopeless("c")


def test_whatever_happens_everybody_is_moved_once_and_counted(seed: int = 1) -> None:
    draw, now = random.Random(seed), 0.0
    lines, waiting, moved = Lines(RULE), list[Waiting](), Counter[Waiting]()
    for _ in range(5_000):
        now += draw.expovariate(100)
        act = draw.random()
        if act < 0.6:
            one, gone = lines.join(draw.choice("aaaabc"), now)
            waiting.append(one)
            moved.update([] if gone is None else [gone])
        elif act < 0.8:
            moved.update(lines.go_on(2, 0.0))
        elif act < 0.9:
            moved.update(lines.too_late(now))
        elif waiting:
            left = draw.choice(waiting)
            was = left.goes_on
            lines.withdraw(left)
            moved.update([left] if was is None else [])
        waiting = [one for one in waiting if one.goes_on is None]
        assert lines.waiting == len(waiting) <= RULE.waiting_max
        assert set(moved.values()) <= {1}
    assert moved.total() > 1_000


def served(most: int, seconds: float = 3.0) -> tuple[float, float, float]:
    """A processor that can begin 900 requests a second and read 5 000, sent 2 600 by one tenant and 120 by three
    others: what share of the three's goes on, how long theirs wait at the worst, and the longest turn, in seconds."""
    draw, now, due = random.Random(1), 0.0, deque[tuple[float, str]]()
    for tenant, rate in {"flood": 2_600, "a": 40, "b": 40, "c": 40}.items():
        at = 0.0
        while (at := at + draw.expovariate(rate)) < seconds:
            due.append((at, tenant))
    due = deque(sorted(due))
    lines, waits, asked, turn_s, longest_s = Lines(StepRule(waiting_max=10**6)), list[float](), 0, 0.0, 0.0
    while due or lines.waiting:
        begun_at, read = now, 0
        while due and due[0][0] <= now:
            at, tenant = due.popleft()
            asked, read = asked + (tenant != "flood"), read + 1
            if not lines.hopeless(tenant):
                lines.join(tenant, at)
        going = lines.go_on(most, turn_s)
        waits += [now - one.since for one in going if one.tenant != "flood"]
        lines.too_late(now)
        now += 0.0002 * read + 0.0011 * len(going) + 0.0001
        turn_s = now - begun_at
        longest_s = max(longest_s, turn_s)
    return len(waits) / asked, max(waits), longest_s


def test_in_a_flood_on_a_slow_processor_who_sends_little_goes_on_and_turns_stay_short() -> None:
    share, wait_s, longest_s = served(4)
    assert share == 1 and wait_s < 0.1 and longest_s < 0.05
    share, wait_s, longest_s = served(10**6)
    assert longest_s > 0.2, "without the bound"


def step(
    *,
    behind: Callable[[], bool] = lambda: False,
    full: Callable[[str], int | None] = lambda _: None,
    turn_max: int = 2,
) -> tuple[Doorstep, SetClock]:
    clock = SetClock()
    return Doorstep(StepRule(turn_max=turn_max), clock, behind=behind, full=full), clock


async def test_in_each_turn_of_the_loop_so_many_begin() -> None:
    doorstep, _ = step()
    turn, begun, told = 0, Counter[int](), list[str]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    async def one(tenant: str) -> None:
        assert await doorstep.pass_over(tenant) is None
        begun[turn] += 1
        told.append(tenant)

    next_turn()
    await asyncio.gather(*map(one, "aaaaaaab"))
    assert sorted(begun.values()) == [2, 2, 2, 2] and told.index("b") < 4
    assert doorstep.waiting == 0


async def test_who_is_alone_does_not_wait_at_all() -> None:
    doorstep, _ = step()
    for _ in range(5):
        with pytest.raises(StopIteration) as passed:
            doorstep.pass_over("a").send(None)
        assert passed.value.value is None
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_who_waited_for_too_long_is_told_when_to_come_again() -> None:
    doorstep, clock = step(turn_max=1)
    asked = [asyncio.create_task(doorstep.pass_over("a")) for _ in range(5)]
    await asyncio.sleep(0)
    clock.time += 2_500_000
    found = await asyncio.wait_for(asyncio.gather(*asked), 5)
    assert found == [None, None, 1, 1, 1]


async def test_who_stops_waiting_is_forgotten() -> None:
    doorstep, _ = step(turn_max=1)
    asked = [asyncio.create_task(doorstep.pass_over("a")) for _ in range(3)]
    await asyncio.sleep(0)
    assert doorstep.waiting == 2
    asked[1].cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert (found[0], type(found[1]), found[2]) == (None, asyncio.CancelledError, None)
    assert doorstep.waiting == 0


async def test_nobody_goes_on_while_the_store_is_behind() -> None:
    late = True
    doorstep, _ = step(behind=lambda: late)
    assert await doorstep.pass_over("a") == 1
    late = False
    assert await doorstep.pass_over("a") is None


async def test_nor_does_anybody_who_waited_by_then() -> None:
    late = False
    doorstep, _ = step(behind=lambda: late, turn_max=1)
    asked = [asyncio.create_task(doorstep.pass_over(tenant)) for tenant in "aab"]
    await asyncio.sleep(0)
    late = True
    assert await asyncio.wait_for(asyncio.gather(*asked), 5) == [None, 1, 1]
    assert doorstep.waiting == 0


async def long_turns(doorstep: Doorstep, clock: SetClock, seconds: float) -> None:
    """Keep the loop late, with one request of somebody's in each turn."""
    for _ in range(int(seconds / 0.02)):
        assert await doorstep.pass_over("other") is None
        clock.time += 20_000
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def flood_is_full(tenant: str) -> int | None:
    return 7 if tenant == "flood" else None


async def test_after_long_turns_nobody_goes_on_for_whom_there_is_no_room() -> None:
    doorstep, clock = step(full=flood_is_full)
    assert await doorstep.pass_over("flood") is None, "turns are short: the door itself will say so, and record it"
    await long_turns(doorstep, clock, 0.02)
    assert await doorstep.pass_over("flood") == 7
    assert await doorstep.pass_over("other") is None
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await doorstep.pass_over("flood") == 7, "and still after a short one"
    clock.time += 101_000
    assert await doorstep.pass_over("flood") is None


async def test_a_turn_that_breaks_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    doorstep, clock = step(turn_max=1)
    waiting = [asyncio.create_task(doorstep.pass_over("a")) for _ in range(3)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    broken: list[object] = []
    loop.set_exception_handler(lambda _, context: broken.append(context["exception"]))
    with monkeypatch.context() as patched:
        patched.setattr(clock, "time", None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(broken) == 1
    assert await doorstep.pass_over("b") is None
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [None] * 3


async def test_in_a_line_nobody_stands_for_whom_there_is_no_room() -> None:
    doorstep, _ = step(full=flood_is_full, turn_max=1)
    tenants = ["flood", "flood", "other", "flood", "other"]
    asked = [asyncio.create_task(doorstep.pass_over(tenant)) for tenant in tenants]
    assert await asyncio.gather(*asked) == [None, None, None, 7, None]


async def test_after_a_long_turn_fewer_begin_and_after_a_short_one_as_many_as_ever() -> None:
    doorstep, clock = step(turn_max=8)

    async def begun_at_once() -> int:
        asked = [asyncio.create_task(doorstep.pass_over("a")) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        begun = sum(one.done() for one in asked)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        return begun

    assert await begun_at_once() == 8
    await long_turns(doorstep, clock, 0.02)
    assert await begun_at_once() == 3
    assert await begun_at_once() == 8
