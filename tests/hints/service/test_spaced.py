"""Work that anybody may ask for: made once for all who wait, never of before they asked, and with rests."""

from __future__ import annotations

import asyncio
import time

import pytest

from terraflow.hints.service.spaced import REST, Spaced


class Counted:
    """Work that takes `cost_s`, and gives how often it was begun."""

    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s
        self.begun = 0
        self.begins = asyncio.Event()
        self.at_once = 0

    async def __call__(self) -> int:
        self.begun += 1
        self.begins.set()
        self.at_once += 1
        number = self.begun
        await asyncio.sleep(self.cost_s)
        assert self.at_once == 1
        self.at_once -= 1
        return number


async def test_all_who_wait_get_one_and_none_gets_what_was_begun_before_it_asked() -> None:
    work = Counted(0.02)
    spaced = Spaced(work)
    first = [asyncio.create_task(spaced.made()) for _ in range(20)]
    await work.begins.wait()
    later = [asyncio.create_task(spaced.made()) for _ in range(20)]
    assert {await task for task in first} == {1}
    assert {await task for task in later} == {2}


async def test_it_takes_a_tenth_of_the_time() -> None:
    work = Counted(0.01)
    spaced = Spaced(work)
    began = time.monotonic()
    for _ in range(4):
        await spaced.made()
    assert time.monotonic() - began >= 0.01 * (4 + 3 * REST)


async def test_who_gives_up_takes_nothing_from_others_and_a_fault_is_everybodys_once() -> None:
    faults = [LookupError("planted")]

    async def work() -> str:
        await asyncio.sleep(0.01)
        if faults:
            raise faults.pop()
        return "made"

    spaced = Spaced(work)
    tasks = [asyncio.create_task(spaced.made()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    for task in tasks[1:]:
        with pytest.raises(LookupError):
            await task
    assert await spaced.made() == "made"
