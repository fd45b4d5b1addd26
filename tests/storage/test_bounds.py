"""What has served its time is removed, what is open or the log's is not, and stored answers have a bound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from terraflow.core.budget import Window
from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine, Claimed, Finished, KeyOutcome, Reserved, Settlement, StoreUnavailable
from terraflow.spend.windows import window_key
from terraflow.storage.sqlite.committer import NOTES_MAX
from terraflow.storage.sqlite.connection import open_connection
from terraflow.storage.sqlite.pruning import BUNDLES_KEPT, HOURS_KEPT, RESERVATIONS_KEPT, SOME
from terraflow.storage.sqlite.schema import ensure_schema, migrations
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import NOW, SetClock, answer, budgets, claim, entry, line, request_id, reservation


def count(store: SqliteStore, table: str) -> int:
    assert table in ("reservation", "counter", "bundle", "answer", "leaf")
    ((rows,),) = store._database.writer.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(rows)


def hour(at: int) -> BudgetLine:
    return BudgetLine("acme", "tenant", "acme", "hour", window_key(Window.HOUR, Instant(at)), 100)


async def test_resolved_reservations_go_in_time_and_open_ones_stay(store: SqliteStore, clock: SetClock) -> None:
    resolved = [request_id() for _ in range(SOME + 40)]
    for number, request in enumerate(resolved):
        await store.begin([entry(request)], reservation(request, 1, line()))
        posted = Settlement(f"{request}/1", 1 if number % 2 else None)
        await store.finish([entry(request, "outcome")], [posted])
    running, retried = request_id(), request_id()
    await store.begin([entry(running)], reservation(running, 5, line()))
    await store.begin([entry(retried)], reservation(retried, 5, line()))
    await store.settle([Settlement(f"{retried}/1", 5)])
    clock.time = NOW + RESERVATIONS_KEPT
    assert await store.prune() == 0
    clock.time += 1
    assert await store.prune() == len(resolved)
    assert await store.prune() == 0
    assert count(store, "reservation") == 2 and count(store, "leaf") == 2 * len(resolved) + 2
    (use,) = budgets(store, "acme")
    assert (use.reserved, use.posted) == (5, len(resolved) // 2 + 5)
    orphans = {orphan.request_id: orphan for orphan in await store.orphans()}
    assert (orphans[retried].reservations, orphans[retried].settled) == (1, 5)
    await store.finish([entry(running, "outcome")], [Settlement(f"{running}/1", 3)])


async def test_hours_go_after_a_quarter_months_stay_and_what_is_counted_now_goes_on(
    store: SqliteStore, clock: SetClock
) -> None:
    old, held = request_id(), request_id()
    month = line(1_000)
    await store.begin([entry(old)], reservation(old, 40, hour(NOW), month))
    await store.finish([entry(old, "outcome")], [Settlement(f"{old}/1", 40)])
    await store.begin([entry(held)], reservation(held, 7, msgspec.structs.replace(hour(NOW), of="other"), month))
    clock.time = NOW + HOURS_KEPT + 3_600 * 1_000_000
    now = request_id()
    await store.begin([entry(now)], reservation(now, 60, hour(clock.time), month))
    await store.prune()
    found = {(use.of, use.window, use.window_key): (use.reserved, use.posted) for use in budgets(store, "acme")}
    assert found == {
        ("other", "hour", hour(NOW).window_key): (7, 0),
        ("acme", "hour", hour(clock.time).window_key): (60, 0),
        ("acme", "month", month.window_key): (67, 40),
    }
    await store.finish([entry(now, "outcome")], [Settlement(f"{now}/1", 50)])
    after = request_id()
    assert await store.reserve(reservation(after, 50, hour(clock.time), month)) == Reserved()
    again = request_id()
    assert await store.reserve(reservation(again, 100, hour(NOW), month)) == Reserved(), "a counter that is gone is new"


async def test_the_last_bundles_are_kept(store: SqliteStore) -> None:
    with open_tools(store._database.path.parent) as tools:
        for sequence in range(1, BUNDLES_KEPT + 4):
            assert tools.activate_bundle(b"envelope %d" % sequence, sequence, NOW)
    assert await store.prune() == 2
    assert await store.prune() == 0
    assert count(store, "bundle") == BUNDLES_KEPT + 1
    assert await store.active_bundle() == b"envelope %d" % (BUNDLES_KEPT + 3)


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
async def test_answers_have_a_bound_and_the_oldest_go_first(tmp_path: Path, key: bytes | None) -> None:
    clock = SetClock()
    store = open_store(tmp_path, clock=clock, answer_key=key, answers_bytes_max=1_000)
    requests = [request_id() for _ in range(30)]
    for number, request in enumerate(requests):
        clock.time += 1
        await store.claim(claim(request, key=request), NOW)
        ending = KeyOutcome("acme", "app", request, request, True, 200, "PERMITTED")
        await store.finish([entry(request, "outcome")], (), answer(request, b"%070d" % number), ending)
    ((total, stored),) = store._database.writer.execute(
        "SELECT (SELECT total FROM answer_bytes), (SELECT sum(length(data)) FROM answer)"
    ).fetchall()
    assert total == stored <= 1_000
    newest, oldest = requests[-1], requests[0]
    assert await store.claim(claim(oldest, key=newest), NOW) == Finished(newest, 200, "PERMITTED", b"%070d" % 29)
    assert await store.claim(claim(newest, key=oldest), NOW) == Finished(oldest, 200, "PERMITTED", None)
    before = count(store, "answer")
    huge = request_id()
    await store.finish([entry(huge, "outcome")], (), answer(huge, b"x" * 2_000, cache_key="huge"))
    assert await store.find_answer("acme", "huge", NOW) is None
    assert len(await store.find_entries("acme", "app", huge)) == 1
    assert count(store, "answer") == before, "what can never fit ousts nobody"
    assert (await store.erase(request_id=newest)).answers == 1
    await store.close()


async def test_a_database_from_before_the_bounds_gets_them(tmp_path: Path) -> None:
    old = open_connection(tmp_path / "terraflow.db")
    ensure_schema(old, migrations()[:2])
    old.execute("INSERT INTO answer VALUES (1, 'acme', 'req_1', 0, x'0102', 5, ?, NULL, 'cap', NULL)", (NOW + 9,))
    old.execute("INSERT INTO reservation VALUES ('req_1/1', 'req_1', 'acme', 'cap', 1, 1, '[]', 'posted', 1)")
    old.close()
    clock = SetClock()
    store = open_store(tmp_path, clock=clock, answers_bytes_max=2)
    assert store._database.writer.execute("SELECT total FROM answer_bytes").fetchall() == [(2,)]
    new = request_id()
    await store.finish([entry(new, "outcome")], (), answer(new, b"ab", cache_key="c"))
    found = await store.find_answer("acme", "c", NOW)
    assert found is not None and found.data == b"ab" and count(store, "answer") == 1
    clock.time = NOW * 2
    assert await store.prune() == 1
    assert await store.claim(claim(new), NOW) == Claimed()
    await store.close()


async def test_a_store_with_many_notes_is_behind_long_before_it_takes_no_more(store: SqliteStore) -> None:
    for noted in range(NOTES_MAX):
        assert store.behind() is (noted >= NOTES_MAX // 2)
        store.note([entry(request_id(), "outcome")])
    with pytest.raises(StoreUnavailable):
        store.note([entry(request_id(), "outcome")])
    await store.drain()
    assert not store.behind() and count(store, "leaf") == NOTES_MAX
