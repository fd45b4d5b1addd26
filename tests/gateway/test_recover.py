"""What a crash left is brought to its end: all of it, at once, and again where the store failed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from terraflow.gateway.recover import recover
from terraflow.gateway.running import Presence, Running
from terraflow.ports.store import Entry, Reserved, Store, StoreUnavailable
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import SetClock, budgets, entry, line, request_id, reservation

LEFT = 300


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = open_store(tmp_path / "data", clock=SetClock())
    yield opened
    await opened.close()


async def leave(store: Store, count: int) -> list[str]:
    """Requests with an intent and no outcome; every second one may have been charged."""
    made = [request_id() for _ in range(count)]
    for number, request in enumerate(made):
        wanted = reservation(request, 7, line(), chargeable=number % 2 == 0)
        assert await store.begin([entry(request)], wanted) == Reserved()
    return made


async def outcomes(store: Store, requests: Sequence[str]) -> list[dict[str, Any]]:
    found = [await store.find_entries("acme", "app", request) for request in requests]
    assert all([each.kind for each in entries] == ["intent", "outcome"] for entries in found)
    return [json.loads(entries[1].data) for entries in found]


class Flush:
    """Counts how many outcomes wait for the disk together, and fails for those that it is told to."""

    def __init__(self, real: SqliteStore, failing: frozenset[str] = frozenset()) -> None:
        self._real, self._failing = real, failing
        self.together = self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def finish(self, entries: Sequence[Entry], *given: Any, **named: Any) -> None:
        if entries[0].request_id in self._failing:
            raise StoreUnavailable("the fault of a test")
        self.together += 1
        self.most = max(self.most, self.together)
        await self._real.finish(entries, *given, **named)
        self.together -= 1


async def test_every_request_that_was_left_is_closed_and_posted_as_it_must_be(store: SqliteStore) -> None:
    left = await leave(store, LEFT)
    over = Flush(store)
    assert await recover(over, SetClock(), Running()) == LEFT  # type: ignore[arg-type]
    ended = await outcomes(store, left)
    assert [one.get("cost_micro_usd", 0) for one in ended] == [7, 0] * (LEFT // 2)
    assert all(one["recovered"] for one in ended)
    assert over.most > 64, "one after the other they would each wait for the disk"
    [use] = budgets(store, "acme")
    assert (use.reserved, use.posted) == (0, 7 * LEFT // 2)
    assert await recover(store, SetClock(), Running()) == 0


async def test_one_that_cannot_be_closed_is_told_of_and_does_not_keep_the_others(store: SqliteStore) -> None:
    left = await leave(store, 6)
    with pytest.raises(StoreUnavailable):
        await recover(Flush(store, frozenset(left[2:3])), SetClock(), Running())  # type: ignore[arg-type]
    assert [orphan.request_id for orphan in await store.orphans()] == left[2:3]
    assert await recover(store, SetClock(), Running()) == 1


async def test_what_runs_is_left_alone(store: SqliteStore) -> None:
    left = await leave(store, 2)
    running = Running()
    running.opened(left[0], Presence())
    assert await recover(store, SetClock(), running) == 1
    assert [orphan.request_id for orphan in await store.orphans()] == left[:1]
