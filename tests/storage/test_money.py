"""Money under concurrency, against a plain model, and a racy store that the judge must catch."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from terraflow.ports.store import (
    BudgetLine,
    Entry,
    NoRoom,
    Reservation,
    Reserved,
    Settlement,
    Store,
    StoreConflict,
)
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import open_store
from tests.storage.makers import SetClock, budgets, entry, line, request_id, reservation

LIMIT = 1_000


class RacyStore:
    """Checks, yields to others, then acts: what a store must not do."""

    def __init__(self) -> None:
        self.used = 0

    async def begin(self, entries: list[Entry], wanted: Reservation) -> Reserved | NoRoom:
        seen = self.used
        await asyncio.sleep(0)
        if seen + wanted.amount > LIMIT:
            return NoRoom("tenant", "month")
        self.used = seen + wanted.amount
        return Reserved()

    async def finish(self, entries: list[Entry], settlements: list[Settlement]) -> None:
        await asyncio.sleep(0)


async def overspend(store: Store | RacyStore, callers: int = 64) -> int:
    """Micro-dollars by which the granted reservations, as the callers hold them, passed the limit at the worst."""
    held = worst = 0

    async def caller(seed: int) -> None:
        nonlocal held, worst
        chance = random.Random(seed)
        for _ in range(6):
            request, amount = request_id(), chance.randint(1, 90)
            wanted = reservation(request, amount, line(LIMIT))
            if await store.begin([entry(request)], wanted) != Reserved():  # type: ignore[arg-type]
                continue
            held += amount
            worst = max(worst, held)
            await asyncio.sleep(chance.random() / 500)
            posted = chance.choice([None, chance.randint(0, amount)])
            held -= amount - (posted or 0)
            await store.finish([entry(request, "outcome")], [Settlement(wanted.id, posted)])  # type: ignore[arg-type]

    await asyncio.gather(*map(caller, range(callers)))
    return max(0, worst - LIMIT)


async def test_64_callers_on_a_small_budget_overspend_nothing(store: Store) -> None:
    assert await overspend(store) == 0
    (budget,) = budgets(store, "acme")
    assert budget.reserved == 0 and 0 < budget.posted <= LIMIT


async def test_the_judge_catches_a_racy_store() -> None:
    assert await overspend(RacyStore()) > 0


def counters_equal_the_sum_of_reservations(folder: Path) -> bool:
    """Judges the counters by the reservations, in plain SQL, whatever the store keeps in memory."""
    with sqlite3.connect(folder / DATABASE) as raw:
        kept = {no: (r, p) for no, r, p in raw.execute("SELECT id, reserved, posted FROM counter")}
        summed = dict.fromkeys(kept, (0, 0))
        for amount, lines, state, posted in raw.execute("SELECT amount, lines, state, posted FROM reservation"):
            for no, _limit in json.loads(lines):
                reserved_sum, posted_sum = summed[no]
                summed[no] = (reserved_sum + (amount if state == "reserved" else 0), posted_sum + posted)
    raw.close()
    return kept == summed


async def test_counters_are_the_sum_of_reservations_after_a_storm(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    await overspend(store)
    left = request_id()
    await store.begin([entry(left)], reservation(left, 0, line(LIMIT)))
    await store.close()
    assert counters_equal_the_sum_of_reservations(tmp_path)
    with sqlite3.connect(tmp_path / DATABASE) as raw:
        raw.execute("UPDATE counter SET posted = posted + 1")
    raw.close()
    assert not counters_equal_the_sum_of_reservations(tmp_path)


COUNTERS = [("workload", "a"), ("workload", "b"), ("tenant", "acme")]
amounts = st.integers(0, 60)
limits = st.lists(st.none() | st.integers(0, 200), min_size=3, max_size=3)


class MoneyMachine(RuleBasedStateMachine):
    """The store and a plain model are asked the same things and must say the same."""

    open_reservations: Bundle[tuple[str, int, list[int]]] = Bundle("open_reservations")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="terraflow-test-"))
        self.store = open_store(self.folder, clock=SetClock())
        self.model = [[0, 0] for _ in COUNTERS]
        self.resolved: list[str] = []

    @rule(target=open_reservations, amount=amounts, limits=limits, touched=st.sets(st.integers(0, 2), min_size=1))
    def reserve(self, amount: int, limits: list[int | None], touched: set[int]) -> tuple[str, int, list[int]]:
        request, numbers = request_id(), sorted(touched)
        lines = [BudgetLine("acme", *COUNTERS[n], "month", "2026-11", limits[n]) for n in numbers]
        full = [n for n in numbers if (limit := limits[n]) is not None and sum(self.model[n]) + amount > limit]
        got = self.runner.run(self.store.begin([entry(request)], reservation(request, amount, *lines)))
        if full:
            assert got == NoRoom(COUNTERS[full[0]][0], "month")
            return "", 0, []
        assert got == Reserved()
        for n in numbers:
            self.model[n][0] += amount
        return f"{request}/1", amount, numbers

    @rule(taken=consumes(open_reservations), posted=st.none() | amounts)
    def settle(self, taken: tuple[str, int, list[int]], posted: int | None) -> None:
        name, amount, numbers = taken
        if not name:
            return
        self.runner.run(self.store.settle([Settlement(name, posted)]))
        self.resolved.append(name)
        for n in numbers:
            self.model[n][0] -= amount
            self.model[n][1] += posted or 0

    @rule(pick=st.randoms(use_true_random=False))
    def settle_again(self, pick: random.Random) -> None:
        if self.resolved:
            with pytest.raises(StoreConflict):
                self.runner.run(self.store.settle([Settlement(pick.choice(self.resolved), 1)]))

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        assert counters_equal_the_sum_of_reservations(self.folder)
        self.store = open_store(self.folder, clock=SetClock())

    @invariant()
    def counters_agree(self) -> None:
        found = {(b.level, b.of): [b.reserved, b.posted] for b in budgets(self.store, "acme")}
        assert {key: found.get(key, [0, 0]) for key in COUNTERS} == dict(zip(COUNTERS, self.model, strict=True))

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)


MoneyMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None, database=None)
test_the_store_agrees_with_a_plain_model = MoneyMachine.TestCase
