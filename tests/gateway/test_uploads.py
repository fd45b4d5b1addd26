"""Places for what is handed in: bounded, fair between tenants, and given back by every ending."""

from __future__ import annotations

import asyncio

import pytest

from terraflow.gateway.batches.uploads import TENANT_MAX, UPLOADS_MAX, WAITING_MAX, Uploads


class Hand:
    """One upload; `placed` is what it was told, None while it waits."""

    def __init__(self, uploads: Uploads, tenant: str) -> None:
        self.placed: bool | None = None
        self.done = asyncio.Event()
        self.task = asyncio.create_task(self._hold(uploads, tenant))

    async def _hold(self, uploads: Uploads, tenant: str) -> None:
        async with uploads.place(tenant) as self.placed:
            await self.done.wait()

    async def end(self) -> None:
        self.done.set()
        await self.task


async def _hands(uploads: Uploads, *tenants: str) -> list[Hand]:
    hands = []
    for tenant in tenants:
        hands.append(Hand(uploads, tenant))
        await asyncio.sleep(0)
    return hands


async def _end(hands: list[Hand]) -> None:
    for hand in hands:
        await hand.end()


async def test_no_tenant_holds_all_the_places() -> None:
    uploads = Uploads()
    hands = await _hands(uploads, *["flood"] * UPLOADS_MAX, "calm", "calm", "third")
    assert [hand.placed for hand in hands] == [*[True] * TENANT_MAX, *[None] * TENANT_MAX, True, True, None]
    await hands[4].end()
    await asyncio.sleep(0)
    assert hands[6].placed is True
    assert hands[TENANT_MAX].placed is None
    await _end(hands)


async def test_a_free_place_goes_to_who_has_the_fewest_and_then_to_who_was_served_longest_ago() -> None:
    uploads = Uploads()
    held = await _hands(uploads, "a", "a", "b", "c")
    waiting = await _hands(uploads, "b", "b", "c", "c", "d")
    b, _, c, _, d = waiting
    for ends, placed in ((held[0], d), (held[1], b), (held[2], c), (d, None), (b, waiting[1])):
        await ends.end()
        await asyncio.sleep(0)
        assert placed is None or placed.placed is True
        assert sum(hand.placed is True and not hand.done.is_set() for hand in held + waiting) <= UPLOADS_MAX
    await _end(held + waiting)


async def test_too_many_that_wait_are_turned_away() -> None:
    uploads = Uploads()
    hands = await _hands(uploads, *["flood"] * (TENANT_MAX + WAITING_MAX + 1))
    assert [hand.placed for hand in hands] == [*[True] * TENANT_MAX, *[None] * WAITING_MAX, False]
    [other] = await _hands(uploads, "calm")
    assert other.placed is True
    await _end([*hands, other])


@pytest.mark.parametrize("how", ["waiting", "waiting, and then its turn", "just placed", "inside", "fault"])
async def test_every_ending_gives_the_place_back(how: str) -> None:
    uploads = Uploads()
    first = await _hands(uploads, *["a"] * TENANT_MAX)
    [hand] = await _hands(uploads, "a")
    if how == "waiting, and then its turn":
        hand.task.cancel()
    if how == "just placed":
        first[0].done.set()
        await asyncio.sleep(0)
        assert hand.placed is None and not uploads._waiting, "its task has not come round to it"
    elif how != "waiting":
        await first[0].end()
    if how == "inside":
        await asyncio.sleep(0)
        assert hand.placed is True
    if how == "fault":
        hand.done.set()
        with pytest.raises(RuntimeError):
            async with uploads.place("b"):
                raise RuntimeError
    hand.task.cancel()
    await asyncio.gather(hand.task, return_exceptions=True)
    await _end(first)
    whole = await _hands(uploads, *["a"] * TENANT_MAX, *["b"] * TENANT_MAX)
    assert [each.placed for each in whole] == [True] * UPLOADS_MAX
    await _end(whole)
