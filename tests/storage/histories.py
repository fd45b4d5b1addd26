"""Recorded histories of reservations, and whether any order of the calls explains them.

A history is linearizable if the calls can be put in one order, each somewhere between its start and its end, in which
a plain counter with a limit would have answered the same (Herlihy and Wing, 1990; the search is Wing and Gong's, 1993,
with the states already tried remembered).
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple, Protocol

from terraflow.ports.store import Entry, NoRoom, Reservation, Reserved, Settlement
from tests.storage.makers import entry, line, request_id, reservation

CALLERS = 5
CALLS = 3


class Call(NamedTuple):
    """One call: `change` micro-dollars asked of the counter, granted or not, between two moments."""

    started: int
    ended: int
    change: int
    reserving: bool
    granted: bool


class Reserving(Protocol):
    """What a history is recorded of."""

    async def begin(self, entries: list[Entry], wanted: Reservation) -> Reserved | NoRoom: ...

    async def finish(self, entries: list[Entry], settlements: list[Settlement]) -> None: ...


async def record_history(store: Reserving, seed: int, limit: int) -> list[Call]:
    """Let a few callers reserve and settle at once on a counter of their own; what each saw, and when."""
    chance = random.Random(seed)
    history: list[Call] = []
    moment = 0
    counter = line(limit, of=f"counter-{seed}")

    def tick() -> int:
        nonlocal moment
        moment += 1
        return moment

    async def caller(pauses: random.Random) -> None:
        for _ in range(CALLS):
            for _ in range(pauses.randint(0, 3)):
                await asyncio.sleep(0)
            request, amount = request_id(), pauses.randint(1, limit)
            started = tick()
            got = await store.begin([entry(request)], reservation(request, amount, counter))
            granted = isinstance(got, Reserved)
            history.append(Call(started, tick(), amount, True, granted))
            if granted:
                posted = pauses.randint(0, amount // 4)
                started = tick()
                await store.finish([entry(request, "outcome")], [Settlement(f"{request}/1", posted)])
                history.append(Call(started, tick(), posted - amount, False, True))

    await asyncio.gather(*(caller(random.Random(chance.random())) for _ in range(CALLERS)))
    return history


def linearizable(history: list[Call], limit: int) -> bool:
    """Whether some order explains the history."""
    calls = sorted(history)
    everything = (1 << len(calls)) - 1
    tried: set[tuple[int, int]] = set()
    waiting = [(0, 0)]
    while waiting:
        state = waiting.pop()
        if state in tried:
            continue
        tried.add(state)
        done, used = state
        if done == everything:
            return True
        left = [(number, call) for number, call in enumerate(calls) if not done >> number & 1]
        first_end = min(call.ended for _, call in left)
        for number, call in left:
            if call.started > first_end:
                break
            fits = used + call.change <= limit
            if call.reserving and call.granted is not fits:
                continue
            waiting.append((done | 1 << number, used + call.change if call.granted else used))
    return False
