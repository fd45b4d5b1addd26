"""Slots in flight: taken up to the limit, waited for until the deadline, given back to the longest waiter."""

import asyncio
import time

import pytest

from terraflow.app.runtime import SystemClock
from terraflow.gateway.adaptive_limit import SAMPLES_MIN, LimitRule
from terraflow.gateway.capacity import CAPABILITIES_MAX, Capacity, Slots


def slots() -> Capacity:
    return Capacity(LimitRule(floor=2, ceiling=256), SystemClock())


async def test_without_a_limit_there_is_always_room() -> None:
    capacity = slots()
    assert all([await capacity.take("m", None, 0) for _ in range(100)])
    assert capacity.free("m", None) is None


async def test_a_full_capability_is_waited_for_in_order() -> None:
    capacity = slots()
    assert capacity.try_take("m", 1)
    assert not capacity.try_take("m", 1)
    assert capacity.free("m", 1) == 0
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await capacity.take("m", 1, 5)
        order.append(number)
        capacity.give_back("m")

    tasks = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    capacity.give_back("m")
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert capacity.free("m", 1) == 1


async def test_time_runs_out_and_nothing_stays_behind() -> None:
    capacity = slots()
    capacity.try_take("m", 1)
    assert not await capacity.take("m", 1, 0.01)
    capacity.give_back("m")
    assert capacity.try_take("m", 1)
    assert capacity._waiting == {}


async def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    capacity = slots()
    capacity.try_take("m", 1)
    first = asyncio.create_task(capacity.take("m", 1, 5))
    second = asyncio.create_task(capacity.take("m", 1, 5))
    await asyncio.sleep(0)
    capacity.give_back("m")
    first.cancel()
    assert await asyncio.wait_for(second, 1)


async def test_a_provider_that_is_given_too_much_gets_less_and_who_waits_gets_the_next_slot_below_it() -> None:
    capacity = slots()
    for _ in range(10):
        assert capacity.try_take("m", None)
    assert capacity.free("m", None) is None
    capacity.overloaded("m", time.monotonic())
    assert (capacity.free("m", None), capacity.free("m", 100), capacity.free("other", None)) == (0, 0, None)
    waiting = asyncio.create_task(capacity.take("m", None, 5))
    await asyncio.sleep(0)
    for _ in range(3):
        capacity.give_back("m")
        assert not waiting.done()
    capacity.give_back("m")
    assert await waiting
    assert (capacity.free("m", None), capacity.free("m", 7), capacity.free("m", 9)) == (0, 0, 0)
    assert capacity.free("m", 3) == 0


async def test_a_limit_that_rises_lets_in_who_waits_before_anybody_that_comes() -> None:
    capacity = slots()
    for _ in range(10):
        assert capacity.try_take("m", None)
    capacity.overloaded("m", time.monotonic())
    for _ in range(3):
        capacity.give_back("m")
    waiting = asyncio.create_task(capacity.take("m", None, 5))
    await asyncio.sleep(0.3)
    assert capacity.free("m", None) == 0
    for _ in range(SAMPLES_MIN):
        capacity.began("m", time.monotonic())
    room = capacity.free("m", None)
    assert await waiting
    assert capacity._waiting == {}
    assert capacity.free("m", None) == room


async def test_the_limit_of_the_definition_stays_the_most() -> None:
    capacity = slots()
    assert [capacity.try_take("m", 3) for _ in range(4)] == [True, True, True, False]
    for _ in range(100):
        capacity.answered("m", time.monotonic() - 0.5, 10)
    assert not capacity.try_take("m", 3)


async def test_what_is_remembered_of_capabilities_is_bounded() -> None:
    capacity = slots()
    for number in range(CAPABILITIES_MAX + 50):
        capacity.began(str(number), time.monotonic())
    assert len(capacity._limits) == CAPABILITIES_MAX


@pytest.mark.parametrize("given", [False, True], ids=["waiting", "given"])
async def test_a_slot_is_not_lost_with_its_waiter(given: bool) -> None:
    capacity = slots()
    capacity.try_take("m", 1)
    waiting = asyncio.create_task(capacity.take("m", 1, 5))
    await asyncio.sleep(0)
    if given:
        capacity.give_back("m")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not given:
        capacity.give_back("m")
    assert (capacity._taken, capacity._waiting) == ({}, {})


async def test_how_it_stands_is_told() -> None:
    capacity = slots()
    assert capacity.slots("m", 3) == Slots(taken=0, waiting=0, limit=3, ceiling=3)
    assert capacity.slots("m", None) == Slots(taken=0, waiting=0, limit=256, ceiling=256)
    assert capacity.try_take("m", 1)
    waits = asyncio.create_task(capacity.take("m", 1, 5))
    await asyncio.sleep(0)
    assert capacity.slots("m", 1) == Slots(taken=1, waiting=1, limit=1, ceiling=1)
    capacity.give_back("m")
    assert await waits
    assert capacity.slots("m", 1) == Slots(taken=1, waiting=0, limit=1, ceiling=1)


async def test_a_limit_that_has_fallen_is_told() -> None:
    capacity = slots()
    for _ in range(20):
        capacity.try_take("m", None)
    capacity.overloaded("m", time.monotonic())
    assert capacity.slots("m", None) == Slots(taken=20, waiting=0, limit=14, ceiling=256)
    assert capacity.slots("m", 10).limit == 10
