"""How many run, how many wait, and who is turned away."""

import asyncio

import pytest

from terraflow.gateway.admission import Admission, AdmissionRule, Admitted


def door(running: int = 2, waiting: int = 2, tenant: int = 100) -> Admission:
    return Admission(AdmissionRule(running_max=running, waiting_max=waiting, tenant_max=tenant))


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_full_plane_queues_and_a_full_queue_sheds() -> None:
    admission = door(running=1, waiting=1)
    assert await admission.enter("t", 1, 1) is Admitted.YES
    second = asyncio.create_task(admission.enter("t", 1, 1))
    await settle()
    assert await admission.enter("t", 1, 1) is Admitted.SHED
    admission.leave("t")
    assert await second is Admitted.YES
    admission.leave("t")
    assert admission.running == 0


async def test_a_tenant_has_its_own_bound() -> None:
    admission = door(running=5, tenant=2)
    assert await admission.enter("t", 1, 1) is Admitted.YES
    assert await admission.enter("t", 1, 1) is Admitted.YES
    assert await admission.enter("t", 1, 1) is Admitted.TENANT_FULL
    assert await admission.enter("u", 1, 1) is Admitted.YES
    admission.leave("t")
    assert await admission.enter("t", 1, 1) is Admitted.YES


async def test_the_higher_priority_goes_first_then_the_earlier() -> None:
    admission = door(running=1, waiting=10)
    await admission.enter("t", 0, 1)
    order: list[str] = []

    async def wait(name: str, priority: int) -> None:
        assert await admission.enter("t", priority, 5) is Admitted.YES
        order.append(name)
        admission.leave("t")

    tasks = [asyncio.create_task(wait(*who)) for who in (("low", 3), ("first", 1), ("second", 1), ("top", 0))]
    await settle()
    admission.leave("t")
    await asyncio.gather(*tasks)
    assert order == ["top", "first", "second", "low"]


async def test_tenants_take_turns_however_many_one_of_them_sends() -> None:
    admission = door(running=1, waiting=20)
    await admission.enter("many", 0, 1)
    order: list[str] = []

    async def wait(tenant: str, priority: int) -> None:
        assert await admission.enter(tenant, priority, 5) is Admitted.YES
        order.append(f"{tenant}{priority}")
        admission.leave(tenant)

    who = [("many", 0)] * 4 + [("few", 3), ("few", 2), ("one", 3)]
    tasks = [asyncio.create_task(wait(*one)) for one in who]
    await settle()
    admission.leave("many")
    await asyncio.gather(*tasks)
    assert order == ["many0", "few2", "one3", "many0", "few3", "many0", "many0"]
    assert admission.running == 0


async def test_who_gave_up_is_not_kept_in_the_queue() -> None:
    admission = door(running=1, waiting=2)
    await admission.enter("t", 1, 1)
    for _ in range(50):
        assert await admission.enter("t", 1, 0.0001) is Admitted.TOO_LATE
    held = [asyncio.create_task(admission.enter(tenant, 1, 5)) for tenant in ("t", "u")]
    await settle()
    assert admission.queued == 2
    assert await admission.enter("t", 1, 1) is Admitted.SHED
    held[0].cancel()
    await settle()
    assert admission.queued == 1
    admission.leave("t")
    assert await held[1] is Admitted.YES
    admission.leave("u")
    assert (admission.running, admission.queued) == (0, 0)


async def test_a_deadline_in_the_queue_gives_up_the_place_in_it() -> None:
    admission = door(running=1, waiting=1)
    await admission.enter("t", 1, 1)
    assert await admission.enter("t", 1, 0.01) is Admitted.TOO_LATE
    assert await admission.enter("t", 1, 0) is Admitted.TOO_LATE
    waiting = asyncio.create_task(admission.enter("t", 1, 1))
    await settle()
    admission.leave("t")
    assert await waiting is Admitted.YES


@pytest.mark.parametrize("turn_given", [False, True])
async def test_a_cancelled_wait_leaks_no_place(turn_given: bool) -> None:
    admission = door(running=1, waiting=1, tenant=2)
    await admission.enter("t", 1, 1)
    waiting = asyncio.create_task(admission.enter("t", 1, 1))
    await settle()
    if turn_given:
        admission.leave("t")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not turn_given:
        admission.leave("t")
    assert admission.running == 0
    assert [await admission.enter("t", 1, 1) for _ in range(1)] == [Admitted.YES]
    assert admission.running == 1
