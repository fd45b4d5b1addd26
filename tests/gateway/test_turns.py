"""Long work takes turns: one piece each time round the loop, in the order of asking, whatever a piece does."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from terraflow.gateway.turns import Turns


async def test_between_two_pieces_the_loop_goes_round() -> None:
    turns = Turns()
    done: list[str] = []

    async def long(name: str) -> None:
        for piece in "12":
            await turns.take(partial(done.append, name + piece))

    async def short() -> None:
        while "c2" not in done:
            done.append("round")
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(long("a"), long("b"), long("c"), short()), 10)
    pieces = [each for each in done if each != "round"]
    assert pieces == ["a1", "b1", "c1", "a2", "b2", "c2"]
    assert all("round" in done[done.index(one) : done.index(next_one)] for one, next_one in pairwise(pieces))


async def test_a_piece_that_fails_or_is_given_up_keeps_no_turn() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        await turns.take(lambda: 1 // 0)
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(turns.take(lambda: 1)) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
    assert first.result() == 1 and second.cancelled()
    assert await turns.take(lambda: 2) == 2
