"""Who is inside, who waits for them, and what a caller's leaving interrupts."""

import asyncio

import pytest

from terraflow.gateway.running import CallerLeft, CancelledById, PlaneStops, Presence, Running


async def test_a_waiter_is_woken_when_the_request_ends() -> None:
    running = Running()
    running.opened("r", Presence())
    waiter = asyncio.create_task(running.wait("r", 5))
    await asyncio.sleep(0)
    running.ended("r")
    assert await waiter
    assert "r" not in running


async def test_waiting_ends_with_the_time_given_and_an_unknown_one_has_ended() -> None:
    running = Running()
    running.opened("r", Presence())
    assert not await running.wait("r", 0.01)
    assert await running.wait("nobody", 0.01)


async def test_drained_when_the_last_one_left() -> None:
    running = Running()
    assert await running.drained(0.01)
    running.opened("a", Presence())
    running.opened("b", Presence())
    running.ended("a")
    assert not await running.drained(0.01)
    running.ended("b")
    assert await running.drained(0.01)


async def test_leaving_ends_a_wait_and_nothing_else() -> None:
    presence, steps = Presence(), []

    async def work() -> None:
        steps.append("durable write begins")
        await asyncio.sleep(0.02)
        steps.append("durable write ended")
        with presence:
            await asyncio.sleep(30)
        steps.append("never")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    presence.leave()
    with pytest.raises(CallerLeft):
        await asyncio.wait_for(task, 10)
    assert steps == ["durable write begins", "durable write ended"]


async def test_leaving_in_the_middle_of_a_wait_is_no_cancellation_of_the_task() -> None:
    presence = Presence()

    async def work() -> str:
        try:
            with presence:
                await asyncio.sleep(30)
        except CallerLeft:
            await asyncio.sleep(0)
            return "recorded"
        return "answered"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    presence.leave()
    assert await asyncio.wait_for(task, 10) == "recorded"


async def test_what_interrupts_second_neither_renames_the_end_nor_interrupts_again() -> None:
    presence, steps = Presence(), []

    async def work() -> int:
        with pytest.raises(CallerLeft), presence:
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(0.02)
                steps.append("let go")
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    presence.leave()
    await asyncio.sleep(0)
    presence.cancel()
    assert await asyncio.wait_for(task, 10) == 0
    assert steps == ["let go"]


async def test_a_real_cancellation_stays_one() -> None:
    presence = Presence()

    async def work() -> None:
        with presence:
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_plane_that_stops_ends_every_wait_inside_it() -> None:
    running, presences = Running(), [Presence(), Presence()]
    for number, presence in enumerate(presences):
        running.opened(f"r{number}", presence)

    async def work(presence: Presence) -> None:
        with presence:
            await asyncio.sleep(30)

    tasks = [asyncio.create_task(work(presence)) for presence in presences]
    await asyncio.sleep(0)
    running.stop()
    for task in tasks:
        with pytest.raises(PlaneStops):
            await asyncio.wait_for(task, 10)


async def test_only_its_own_application_cancels_a_request() -> None:
    running, presence = Running(), Presence(("acme", "web"))
    running.opened("r", presence)

    async def work() -> None:
        with presence:
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert not running.cancel("r", ("acme", "other"))
    assert not running.cancel("r", ("umbra", "web"))
    assert not running.cancel("s", ("acme", "web"))
    assert not task.done()
    assert running.cancel("r", ("acme", "web"))
    with pytest.raises(CancelledById):
        await asyncio.wait_for(task, 10)
    running.ended("r")
    assert not running.cancel("r", ("acme", "web"))
