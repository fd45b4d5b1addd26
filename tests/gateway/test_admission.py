"""Waiting at the door: who is woken, and that nobody and no place is lost whenever somebody stops waiting."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from terraflow.app.runtime import SystemClock
from terraflow.gateway.adaptive_limit import LimitRule, PlaneLimit
from terraflow.gateway.admission import Admission
from terraflow.gateway.admission_queue import AdmissionRule, State, Ticket


def door(running: int = 2, waiting: int = 2, tenant: int = 100) -> Admission:
    rule = AdmissionRule(running_max=running, waiting_max=waiting, tenant_max=tenant)
    return Admission(rule, SystemClock(), PlaneLimit(LimitRule(floor=1, ceiling=running), working_max=1_000))


def enter(admission: Admission, tenant: str = "t", priority: int = 1, timeout_s: float = 5.0) -> asyncio.Task[Ticket]:
    return asyncio.create_task(admission.enter(tenant, "w", priority, time.monotonic() + timeout_s))


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_full_plane_queues_and_a_full_queue_sheds() -> None:
    admission = door(running=1, waiting=1)
    first = await enter(admission)
    second = enter(admission)
    await settle()
    assert (await enter(admission)).state is State.SHED
    admission.leave(first, 0.0)
    assert (await second).state is State.RUNNING
    admission.leave(await second, 0.0)
    assert admission.running == 0


async def test_one_that_is_given_up_while_it_waits_is_told_at_once() -> None:
    admission = door(running=1, tenant=2)
    await enter(admission)
    low = enter(admission, priority=3)
    await settle()
    high = enter(admission, priority=0)
    ticket = await asyncio.wait_for(low, 10)
    assert (ticket.state, ticket.retry_after_s) == (State.TENANT_FULL, 1)
    assert not high.done()
    high.cancel()


async def test_deadlines_end_the_wait_one_by_one_and_the_rest_waits_on() -> None:
    admission = door(running=1, waiting=10)
    first = await enter(admission)
    assert (await enter(admission, timeout_s=0)).state is State.TOO_LATE
    begun = time.monotonic()
    tasks = [enter(admission, timeout_s=left) for left in (0.3, 0.05, 0.1, 30.0)]
    done = [(await tasks[at]).state for at in (1, 2, 0)]
    assert done == [State.TOO_LATE] * 3
    assert 0.28 < time.monotonic() - begun < 5
    assert admission.queued == 1
    admission.leave(first, 0.0)
    assert (await tasks[3]).state is State.RUNNING


async def test_a_place_given_after_its_deadline_goes_to_the_next() -> None:
    admission = door(running=1)
    first = await enter(admission)
    late, next_one = enter(admission, timeout_s=0.01), enter(admission, priority=3)
    await settle()
    time.sleep(0.02)  # noqa: ASYNC251 - the loop is kept from sweeping
    admission.leave(first, 0.0)
    assert (await late).state is State.TOO_LATE
    assert (await next_one).state is State.RUNNING


@pytest.mark.parametrize("given", [False, True], ids=["waiting", "given"])
async def test_a_cancelled_wait_leaks_no_place(given: bool) -> None:
    admission = door(running=1, tenant=2)
    first = await enter(admission)
    waiting = enter(admission)
    await settle()
    if given:
        admission.leave(first, 0.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not given:
        admission.leave(first, 0.0)
    assert (admission.running, admission.queued) == (0, 0)
    assert (await enter(admission)).state is State.RUNNING


async def test_a_cancelled_wait_hands_its_place_to_the_next() -> None:
    admission = door(running=1)
    first = await enter(admission)
    given, next_one = enter(admission), enter(admission)
    await settle()
    admission.leave(first, 0.0)
    given.cancel()
    assert (await asyncio.wait_for(next_one, 10)).state is State.RUNNING
    assert admission.running == 1


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_cancelled_whenever_every_waiter_hears_and_every_place_comes_back(seed: int) -> None:
    """400 requests of four tenants on three places; a third of them is cancelled at a random turn of the loop, some
    have too little time. At the end nothing runs or waits, and each ended as one of the states."""
    draw, admission, ended = random.Random(seed), door(running=3, waiting=12, tenant=8), list[State | None]()

    async def request(tenant: str, priority: int, timeout_s: float) -> None:
        try:
            ticket = await admission.enter(tenant, "w", priority, time.monotonic() + timeout_s)
        except asyncio.CancelledError:
            ended.append(None)
            raise
        try:
            if ticket.state is State.RUNNING:
                await asyncio.sleep(draw.choice([0, 0, 0.0005]))
        finally:
            if ticket.state is State.RUNNING:
                admission.leave(ticket, 0.0)
            ended.append(ticket.state if ticket.state is not State.GONE else State.RUNNING)

    tasks = []
    for _ in range(400):
        tasks.append(asyncio.create_task(request(draw.choice("abcd"), draw.randrange(4), draw.choice([0.001, 5, 5]))))
        for _ in range(draw.randrange(3)):
            await asyncio.sleep(0)
        if draw.random() < 0.3:
            draw.choice(tasks[-10:]).cancel()
        assert admission.running <= 3 and admission.queued <= 12
    await asyncio.wait(tasks, timeout=10)
    assert all(task.done() for task in tasks)
    assert (admission.running, admission.queued) == (0, 0)
    begun = [task for task in tasks if not task.cancelled()]
    assert len(begun) <= len(ended) <= len(tasks)
    assert ended.count(State.RUNNING) > 30


async def test_a_plane_that_is_too_busy_itself_lets_fewer_run() -> None:
    """Eight at a time that keep the plane for 0.3 s, ten times what it may work on; what they waited for a provider is
    not counted."""
    rule = AdmissionRule(running_max=8, waiting_max=100, tenant_max=100)
    for elsewhere_s, limit in ((0.0, 4), (0.3, 8)):
        admission = Admission(rule, SystemClock(), PlaneLimit(LimitRule(floor=2, ceiling=8), working_max=1))
        for _ in range(2):
            running = [await enter(admission) for _ in range(8)]
            await asyncio.sleep(0.3)
            for ticket in running:
                admission.leave(ticket, elsewhere_s)
            if admission.limit != 8:
                break
        assert admission.limit == limit
        waiting = [enter(admission) for _ in range(12)]
        await settle()
        assert (admission.running, admission.queued) == (limit, 12 - limit)
        for task in waiting:
            task.cancel()
