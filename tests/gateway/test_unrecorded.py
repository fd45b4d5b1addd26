"""What is left without an outcome: what is posted for it, what becomes of its key, and that one fault keeps no other
request from its end. Over the real store, in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from terraflow.core.types import Instant
from terraflow.evidence import record
from terraflow.gateway.recover import REMEMBERED_MAX, RecoveryLoop, Unrecorded, recover
from terraflow.gateway.running import Presence, Running
from terraflow.ports.store import (
    Claimed,
    Entry,
    Finished,
    KeyOutcome,
    Orphan,
    Settlement,
    Store,
    StoreUnavailable,
)
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import NOW, SetClock, claim, line, request_id, reservation

CLOCK = SetClock()
NOBODY = Running()


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    opened = open_store(None, clock=CLOCK)
    yield opened
    await opened.close()


def intent(request: str) -> Entry:
    leaf = record.Intent(schema=1, request_id=request, tenant="acme", time="t", application="app", mouth="chat")
    return Entry("acme", "app", request, "intent", record.encode(leaf))


def outcome(request: str, cost: int = 0) -> Entry:
    leaf = record.Outcome(
        schema=1,
        request_id=request,
        tenant="acme",
        time="t",
        reason_code="EVIDENCE_UNAVAILABLE",
        status=503,
        cost_micro_usd=cost,
    )
    return Entry("acme", "app", request, "outcome", record.encode(leaf))


async def outcome_of(store: Store, request: str) -> dict[str, Any]:
    leaves = await store.find_entries("acme", "app", request)
    assert [leaf.kind for leaf in leaves] == ["intent", "outcome"]
    found: dict[str, Any] = json.loads(leaves[1].data)
    return found


async def money(store: SqliteStore) -> tuple[int, int]:
    rows = store._database.read("counters_of_tenant", ("acme",))
    return sum(row[5] for row in rows), sum(row[6] for row in rows)


async def taken(store: Store) -> bool:
    """Whether the key is still its first holder's, finished without an answer."""
    return await store.claim(claim(request_id()), NOW) != Claimed()


async def test_a_claim_of_a_request_that_left_nothing_else_is_freed_once_it_no_longer_runs(store: SqliteStore) -> None:
    a, running = request_id(), Running()
    await store.claim(claim(a), NOW)
    running.opened(a, Presence())
    assert await recover(store, CLOCK, running) == 0
    assert await taken(store)
    running.ended(a)
    assert await recover(store, CLOCK, running) == 1
    assert not await taken(store)


@pytest.mark.parametrize("amount", [0, 60])
async def test_a_key_stays_taken_when_its_call_may_have_begun_priced_or_not(store: SqliteStore, amount: int) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([intent(a)], reservation(a, amount, line(), chargeable=amount > 0))
    await recover(store, CLOCK, NOBODY)
    assert isinstance(await store.claim(claim(request_id()), NOW), Finished)
    assert (await outcome_of(store, a))["cost_micro_usd" if amount else "status"] == (amount or 500)
    assert await money(store) == (0, amount)


async def test_a_key_stays_taken_when_an_attempt_was_voided_before(store: SqliteStore) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([intent(a)], reservation(a, 60, line()))
    await store.settle([Settlement(f"{a}/1", None)])
    await recover(store, CLOCK, NOBODY)
    assert isinstance(await store.claim(claim(request_id()), NOW), Finished)


async def test_a_key_without_any_attempt_is_free(store: SqliteStore) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([intent(a)], None)
    await recover(store, CLOCK, NOBODY)
    assert not await taken(store)


async def test_what_is_known_is_posted_and_recorded_as_it_was(store: SqliteStore) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([intent(a)], reservation(a, 60, line()))
    known = Unrecorded(intent=intent(a), outcome=outcome(a, 7), settlements=(Settlement(f"{a}/1", 7),), called=True)
    await recover(store, CLOCK, NOBODY, {a: known})
    assert (await outcome_of(store, a))["reason_code"] == "EVIDENCE_UNAVAILABLE"
    assert await money(store) == (0, 7)
    assert isinstance(await store.claim(claim(request_id()), NOW), Finished)
    await recover(store, CLOCK, NOBODY, {a: known})
    assert await money(store) == (0, 7)


async def test_a_reservation_that_the_request_did_not_know_of_was_not_used(store: SqliteStore) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([intent(a)], reservation(a, 60, line()))
    known = Unrecorded(intent=intent(a), outcome=outcome(a), settlements=(), called=False)
    await recover(store, CLOCK, NOBODY, {a: known})
    await outcome_of(store, a)
    assert await money(store) == (0, 0)
    assert not await taken(store)


async def test_a_request_that_left_nothing_at_all_gets_both_leaves(store: SqliteStore) -> None:
    a = request_id()
    known = Unrecorded(intent=intent(a), outcome=outcome(a), settlements=(), called=False)
    await recover(store, CLOCK, NOBODY, {a: known})
    await outcome_of(store, a)


class Older:
    """A store whose orphans are as they were a moment ago, and whose verb for one request fails otherwise."""

    def __init__(self, real: SqliteStore, orphans: Sequence[Orphan], fails: str = "") -> None:
        self._real = real
        self._orphans = orphans
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def orphans(self) -> Sequence[Orphan]:
        return self._orphans

    async def finish(self, entries: Sequence[Entry], *given: Any, key: KeyOutcome | None = None) -> None:
        if entries and entries[0].request_id == self._fails:
            raise ValueError("a fault of the test")
        await self._real.finish(entries, *given, key=key)


async def test_one_that_was_closed_meanwhile_or_fails_keeps_no_other_open(store: SqliteStore) -> None:
    requests = [request_id() for _ in range(3)]
    for request in requests:
        await store.begin([intent(request)], reservation(request, 10, line()))
    older = await store.orphans()
    await store.finish([outcome(requests[0], 3)], [Settlement(f"{requests[0]}/1", 3)])
    with pytest.raises(ValueError, match="a fault of the test"):
        await recover(Older(store, older, fails=requests[1]), CLOCK, NOBODY)  # type: ignore[arg-type]
    assert [orphan.request_id for orphan in await store.orphans()] == [requests[1]]
    assert await money(store) == (10, 3 + 10)


class Failing:
    """A store whose look for orphans fails a few times."""

    def __init__(self, real: SqliteStore, *faults: Exception) -> None:
        self._real = real
        self.faults = list(faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def orphans(self) -> Sequence[Orphan]:
        if self.faults:
            raise self.faults.pop()
        return await self._real.orphans()


class RealPauses(SetClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def test_the_loop_goes_on_after_any_fault_and_then_uses_what_it_remembers(store: SqliteStore) -> None:
    a = request_id()
    await store.begin([intent(a)], reservation(a, 60, line()))
    failing = Failing(store, RuntimeError("of the test"), StoreUnavailable())
    loop = RecoveryLoop(failing, RealPauses(), NOBODY)  # type: ignore[arg-type]
    loop.ask(Unrecorded(intent=intent(a), outcome=outcome(a, 7), settlements=(Settlement(f"{a}/1", 7),), called=True))
    trying = asyncio.create_task(loop.keep_trying(0.001))
    for _ in range(1000):
        await asyncio.sleep(0.001)
        if not await store.orphans():
            break
    trying.cancel()
    assert failing.faults == []
    assert await money(store) == (0, 7)


async def test_what_is_remembered_is_bounded_and_money_goes_first(store: SqliteStore) -> None:
    loop = RecoveryLoop(store, CLOCK, NOBODY)
    refused = [request_id() for _ in range(REMEMBERED_MAX + 5)]
    for request in refused:
        loop.ask(Unrecorded(intent=intent(request), outcome=outcome(request), settlements=(), called=False))
    a = request_id()
    await store.begin([intent(a)], reservation(a, 60, line()))
    loop.ask(Unrecorded(intent=intent(a), outcome=outcome(a, 7), settlements=(Settlement(f"{a}/1", 7),), called=True))
    await loop.close_all()
    assert await money(store) == (0, 7)
    assert len(await store.find_entries("acme", "app", refused[REMEMBERED_MAX - 1])) == 2
    assert await store.find_entries("acme", "app", refused[REMEMBERED_MAX]) == []


async def test_a_drained_store_has_ended_every_verb(store: SqliteStore) -> None:
    a = request_id()
    begun = asyncio.ensure_future(store.begin([intent(a)], None))
    await asyncio.sleep(0)
    begun.cancel()
    store.note([outcome(a)])
    await store.drain()
    assert await store.orphans() == []
    assert len(await store.find_entries("acme", "app", a)) == 2
    assert await store.claim(claim(a), Instant(NOW)) == Claimed()
