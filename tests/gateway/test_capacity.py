"""Slots in flight: taken up to the limit, waited for until the deadline, given back to the longest waiter."""

import asyncio

from terraflow.gateway.capacity import Capacity


async def test_without_a_limit_there_is_always_room() -> None:
    capacity = Capacity()
    assert all([await capacity.take("m", None, 0) for _ in range(100)])
    assert capacity.free("m", None) is None


async def test_a_full_capability_is_waited_for_in_order() -> None:
    capacity = Capacity()
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
    capacity = Capacity()
    capacity.try_take("m", 1)
    assert not await capacity.take("m", 1, 0.01)
    capacity.give_back("m")
    assert capacity.try_take("m", 1)
    assert capacity._waiting == {}


async def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    capacity = Capacity()
    capacity.try_take("m", 1)
    first = asyncio.create_task(capacity.take("m", 1, 5))
    second = asyncio.create_task(capacity.take("m", 1, 5))
    await asyncio.sleep(0)
    capacity.give_back("m")
    first.cancel()
    assert await asyncio.wait_for(second, 1)
