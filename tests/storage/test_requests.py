"""Behaviour of any store: a request's leaves, its money, its key and its answer."""

from __future__ import annotations

import asyncio

import pytest

from terraflow.ports.store import Entry, KeyOutcome, NoRoom, Reserved, Settlement, Store, StoreConflict
from tests.storage.makers import NOW, answer, budgets, claim, entry, line, request_id, reservation


async def used(store: Store, tenant: str = "acme") -> list[tuple[str, int, int]]:
    return [(b.level, b.reserved, b.posted) for b in budgets(store, tenant)]


async def test_leaves_get_consecutive_indexes_in_commit_order(store: Store) -> None:
    a, b, other = request_id(), request_id(), request_id()
    await store.begin([entry(a)], None)
    await store.finish([entry(other, "outcome", tenant="globex")])
    await store.begin([entry(b)], None)
    await store.finish([entry(a, "outcome")])
    leaves = await store.find_entries("acme", "app", a)
    assert [(leaf.index, leaf.kind) for leaf in leaves] == [(0, "intent"), (2, "outcome")]
    assert leaves[0].data == entry(a).data
    assert [leaf.index for leaf in await store.find_entries("acme", "app", b)] == [1]
    assert [leaf.index for leaf in await store.find_entries("globex", "app", other)] == [0]


async def test_a_request_of_another_tenant_or_application_answers_like_one_that_does_not_exist(
    store: Store,
) -> None:
    mine = request_id()
    await store.begin([entry(mine)], None)
    assert await store.find_entries("globex", "app", mine) == []
    assert await store.find_entries("acme", "other", mine) == []
    assert await store.find_entries("acme", "app", request_id()) == []


async def test_reserving_checks_every_line_and_takes_all_or_nothing(store: Store) -> None:
    request = request_id()
    roomy, tight = line(100), line(10, level="workload", of="w")
    refused = await store.begin([entry(request)], reservation(request, 11, roomy, tight))
    assert refused == NoRoom("workload", "month")
    assert await store.find_entries("acme", "app", request) == []
    assert sum(reserved for _, reserved, _ in await used(store)) == 0
    assert await store.begin([entry(request)], reservation(request, 10, roomy, tight)) == Reserved()
    assert await used(store) == [("tenant", 10, 0), ("workload", 10, 0)]


async def test_no_room_names_the_first_full_line(store: Store) -> None:
    request = request_id()
    lines = (line(5, level="business_unit", of="u"), line(1, level="tenant"))
    assert await store.begin([entry(request)], reservation(request, 6, *lines)) == NoRoom("business_unit", "month")


async def test_the_limit_itself_may_be_reached_and_not_passed(store: Store) -> None:
    a, b = request_id(), request_id()
    assert await store.begin([entry(a)], reservation(a, 60, line(100))) == Reserved()
    await store.settle([Settlement(f"{a}/1", 50)])
    assert await store.reserve(reservation(b, 51, line(100))) == NoRoom("tenant", "month")
    assert await store.reserve(reservation(b, 50, line(100))) == Reserved()


async def test_a_line_without_a_limit_counts(store: Store) -> None:
    a = request_id()
    assert await store.begin([entry(a)], reservation(a, 10**12, line(None))) == Reserved()
    assert await used(store) == [("tenant", 10**12, 0)]


async def test_a_reservation_resolves_once(store: Store) -> None:
    a = request_id()
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    await store.settle([Settlement(f"{a}/1", 40)])
    for again in (Settlement(f"{a}/1", 40), Settlement(f"{a}/1", None), Settlement(f"{a}/2", None)):
        with pytest.raises(StoreConflict):
            await store.settle([again])
        with pytest.raises(StoreConflict):
            await store.finish([entry(a, "outcome")], [again])
    assert await used(store) == [("tenant", 0, 40)]
    assert len(await store.find_entries("acme", "app", a)) == 1


async def test_one_call_may_not_resolve_a_reservation_twice(store: Store) -> None:
    a = request_id()
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    with pytest.raises(StoreConflict):
        await store.settle([Settlement(f"{a}/1", 40), Settlement(f"{a}/1", 40)])
    assert await used(store) == [("tenant", 60, 0)]


async def test_a_reservation_id_is_unique_for_ever(store: Store) -> None:
    a = request_id()
    await store.begin([entry(a)], reservation(a, 1, line(100)))
    with pytest.raises(StoreConflict):
        await store.reserve(reservation(a, 1, line(100)))
    await store.settle([Settlement(f"{a}/1", None)])
    with pytest.raises(StoreConflict):
        await store.reserve(reservation(a, 1, line(100)))
    assert await used(store) == [("tenant", 0, 0)]


async def test_a_counter_named_twice_in_one_reservation_is_refused(store: Store) -> None:
    a = request_id()
    with pytest.raises(StoreConflict):
        await store.begin([entry(a)], reservation(a, 60, line(100), line(100)))
    assert await store.find_entries("acme", "app", a) == []


async def test_voiding_gives_everything_back_and_an_overrun_is_posted_whole(store: Store) -> None:
    a, b = request_id(), request_id()
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    await store.finish([entry(a, "outcome")], [Settlement(f"{a}/1", None)])
    assert await used(store) == [("tenant", 0, 0)]
    await store.begin([entry(b)], reservation(b, 60, line(100)))
    await store.finish([entry(b, "outcome")], [Settlement(f"{b}/1", 130)])
    assert await used(store) == [("tenant", 0, 130)]
    assert await store.reserve(reservation(b, 0, line(100), attempt=2)) == NoRoom("tenant", "month")


async def test_a_verb_that_fails_has_no_effect_and_harms_no_other_of_its_batch(store: Store) -> None:
    good = [request_id() for _ in range(5)]
    bad, long = request_id(), request_id()
    await store.begin([entry(bad)], reservation(bad, 1, line(100)))
    results = await asyncio.gather(
        *(store.begin([entry(r)], reservation(r, 1, line(100))) for r in good[:3]),
        store.begin([entry(bad, "again")], reservation(bad, 1, line(100))),
        store.begin([Entry("acme", "app", long, "intent", b"x" * 65_536)], reservation(long, 1, line(100))),
        *(store.begin([entry(r)], reservation(r, 1, line(100))) for r in good[3:]),
        return_exceptions=True,
    )
    kinds = [type(result) for result in results]
    assert kinds == [Reserved] * 3 + [StoreConflict, ValueError] + [Reserved] * 2
    assert await used(store) == [("tenant", 6, 0)]
    indexes = [(await store.find_entries("acme", "app", r))[0].index for r in good]
    assert sorted(indexes) == [1, 2, 3, 4, 5]
    assert await store.find_entries("acme", "app", long) == []


async def test_a_cancelled_verb_runs_to_its_end(store: Store) -> None:
    a = request_id()
    begun = asyncio.create_task(store.begin([entry(a)], None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    await store.finish([entry(a, "outcome")])
    assert [leaf.kind for leaf in await store.find_entries("acme", "app", a)] == ["intent", "outcome"]


async def test_finish_ends_everything_in_one_step_or_nothing(store: Store) -> None:
    a = request_id()
    await store.claim(claim(a), NOW)
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    ending = KeyOutcome("acme", "app", "k" * 64, a, True, 200, "PERMITTED")
    with pytest.raises(StoreConflict):
        await store.finish([entry(a, "outcome")], [Settlement(f"{a}/9", 1)], answer(a, cache_key="c"), ending)
    assert len(await store.find_entries("acme", "app", a)) == 1
    assert await store.find_answer("acme", "c", NOW) is None
    assert await used(store) == [("tenant", 60, 0)]
    await store.finish([entry(a, "outcome")], [Settlement(f"{a}/1", 1)], answer(a, cache_key="c"), ending)
    assert await used(store) == [("tenant", 0, 1)]
    assert await store.find_answer("acme", "c", NOW) is not None


async def test_one_answer_a_request(store: Store) -> None:
    a = request_id()
    await store.finish([entry(a, "outcome")], (), answer(a))
    with pytest.raises(StoreConflict):
        await store.finish([entry(a, "more")], (), answer(a))
    assert len(await store.find_entries("acme", "app", a)) == 1


async def test_notes_are_in_the_log_soon_without_waiting(store: Store) -> None:
    a, b = request_id(), request_id()
    store.note([entry(a), entry(a, "outcome")])
    assert await store.find_entries("acme", "app", a) == []
    await store.begin([entry(b)], None)
    assert len(await store.find_entries("acme", "app", a)) == 2
    store.note([entry(request := request_id(), "outcome")])
    for _ in range(100):
        if await store.find_entries("acme", "app", request):
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("a note alone was not written within a second")
    assert [orphan.request_id for orphan in await store.orphans()] == [b]
