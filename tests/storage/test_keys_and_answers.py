"""Behaviour of any store: idempotency keys, answers, API keys, bundles, orphans."""

from __future__ import annotations

import asyncio

import msgspec

from terraflow.core.types import Instant
from terraflow.ports.store import (
    ApiKey,
    Claimed,
    Conflicting,
    Finished,
    Held,
    KeyHolder,
    KeyOutcome,
    Settlement,
    Store,
    StoredAnswer,
)
from terraflow.storage.sqlite.store import SqliteStore
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import HOUR, NOW, SetClock, answer, claim, entry, line, request_id, reservation


def outcome(request: str, *, keep: bool = True) -> KeyOutcome:
    return KeyOutcome("acme", "app", "k" * 64, request, keep, 200, "PERMITTED")


async def test_a_key_is_claimed_run_and_replayed(store: Store) -> None:
    a, b = request_id(), request_id()
    assert await store.claim(claim(a), NOW) == Claimed()
    assert await store.claim(claim(b), NOW) == Held(a)
    assert await store.claim(claim(b, body="c" * 64), NOW) == Conflicting()
    await store.finish([entry(a, "outcome")], (), answer(a), outcome(a))
    assert await store.claim(claim(b), NOW) == Finished(a, 200, "PERMITTED", b"the answer")
    assert await store.claim(claim(b, body="c" * 64), NOW) == Conflicting()


async def test_keys_of_another_application_are_other_keys(store: Store) -> None:
    a, b = request_id(), request_id()
    assert await store.claim(claim(a), NOW) == Claimed()
    assert await store.claim(claim(b, application="other"), NOW) == Claimed()


async def test_an_outcome_that_invites_a_retry_frees_the_key(store: Store) -> None:
    a, b = request_id(), request_id()
    await store.claim(claim(a), NOW)
    await store.finish([entry(a, "outcome")], (), None, outcome(a, keep=False))
    assert await store.claim(claim(b), NOW) == Claimed()


async def test_an_expired_holders_key_is_free_and_its_late_end_is_not_the_new_holders(store: Store) -> None:
    a, b = request_id(), request_id()
    await store.claim(claim(a), NOW)
    assert await store.claim(claim(b), Instant(NOW + HOUR)) == Claimed()
    await store.finish([entry(a, "outcome")], (), None, outcome(a))
    await store.finish([entry(a, "more")], (), None, outcome(a, keep=False))
    assert await store.claim(claim(a), Instant(NOW + HOUR - 1)) == Held(b)


async def test_a_key_without_its_answer_says_so(store: Store) -> None:
    a, b = request_id(), request_id()
    await store.claim(claim(a), NOW)
    await store.finish([entry(a, "outcome")], (), answer(a), outcome(a))
    assert (await store.erase(request_id=a)).answers == 1
    assert await store.claim(claim(b), NOW) == Finished(a, 200, "PERMITTED", None)


async def test_one_of_many_at_once_gets_the_key(store: Store) -> None:
    requests = [request_id() for _ in range(64)]
    got = await asyncio.gather(*(store.claim(claim(r), NOW) for r in requests))
    assert got.count(Claimed()) == 1
    winner = requests[got.index(Claimed())]
    assert got.count(Held(winner)) == 63


async def test_the_response_cache_finds_the_newest_answer_of_its_tenant_until_it_expires(
    store: Store, clock: SetClock
) -> None:
    a, b = request_id(), request_id()
    await store.finish([entry(a, "outcome")], (), answer(a, b"old", cache_key="c"))
    clock.time += 1
    await store.finish([entry(b, "outcome")], (), answer(b, b"new", cache_key="c"))
    found = await store.find_answer("acme", "c", NOW)
    assert found is not None and (found.data, found.request_id, found.producer) == (b"new", b, "cap")
    assert await store.find_answer("globex", "c", NOW) is None
    assert await store.find_answer("acme", "d", NOW) is None
    assert await store.find_answer("acme", "c", Instant(NOW + HOUR)) is None


async def test_erasing_by_request_by_age_and_by_expiry(store: Store, clock: SetClock) -> None:
    requests = [request_id() for _ in range(40)]
    for number, request in enumerate(requests):
        clock.time = NOW + number
        await store.finish([entry(request, "outcome")], (), answer(request, cache_key=request))
    assert (await store.erase(tenant="globex", request_id=requests[0])).answers == 0
    assert (await store.erase(tenant="acme", request_id=requests[0])).answers == 1
    assert (await store.erase(request_id=requests[1])).answers == 1
    assert (await store.erase(tenant="globex", before=Instant(NOW + 30))).answers == 0
    assert (await store.erase(before=Instant(NOW + 30))).answers == 28
    assert await store.find_answer("acme", requests[29], NOW) is None
    assert await store.find_answer("acme", requests[30], NOW) is not None
    assert (await store.erase()).answers == 0
    clock.time = NOW + HOUR
    assert (await store.erase()).answers == 10


async def test_a_copy_is_as_old_as_its_original_and_erased_with_it(store: Store, clock: SetClock) -> None:
    def copy(request: str, original: str) -> StoredAnswer:
        return msgspec.structs.replace(answer(request), original=original, expires_at=Instant(NOW + 9 * HOUR))

    a, b, late, other = request_id(), request_id(), request_id(), request_id()
    for original in (a, b):
        await store.claim(claim(original, key=original), NOW)
        await store.finish([entry(original, "outcome")], (), answer(original, cache_key=original))
    clock.time += 5
    copies = {request_id(): original for original in (a, a, b)}
    for number, original in copies.items():
        await store.claim(claim(number, key=number), NOW)
        ending = KeyOutcome("acme", "app", number, number, True, 200, "CACHE_HIT")
        await store.finish([entry(number, "outcome")], (), copy(number, original), ending)
        assert await store.claim(claim(other, key=number), NOW) == Finished(number, 200, "CACHE_HIT", b"the answer")
    assert (await store.erase(request_id=a)).answers == 3
    await store.finish([entry(late, "outcome")], (), copy(late, a))
    assert (await store.erase(request_id=late)).answers == 0, "its original had been erased"
    assert (await store.erase(before=Instant(NOW + 1))).answers == 2


async def test_a_key_is_found_until_a_tool_revokes_it(store: SqliteStore) -> None:
    one = ApiKey("key_1", "acme", "app", "1" * 64, NOW)
    assert await store.find_key("1" * 64) is None
    with open_tools(store._database.path.parent) as tools:
        tools.add_key(one)
        assert await store.find_key("1" * 64) == KeyHolder("acme", "app", "key_1")
        assert tools.revoke_key("key_1", NOW)
    assert await store.find_key("1" * 64) is None


async def test_the_store_sees_the_bundle_that_a_tool_activates(store: SqliteStore) -> None:
    assert (await store.active_sequence(), await store.active_bundle()) == (0, None)
    with open_tools(store._database.path.parent) as tools:
        for sequence, envelope in ((5, b"one"), (6, b"two")):
            assert tools.activate_bundle(envelope, sequence, NOW)
            assert (await store.active_sequence(), await store.active_bundle()) == (sequence, envelope)


async def test_orphans_carry_all_that_closing_them_needs(store: Store) -> None:
    a, b, done = request_id(), request_id(), request_id()
    await store.claim(claim(a), NOW)
    first = reservation(a, 60, line(100), line(None, level="workload", of="w"))
    await store.begin([entry(a)], first)
    await store.settle([Settlement(f"{a}/1", 7)])
    second = reservation(a, 30, line(100), attempt=2, chargeable=False)
    await store.reserve(second)
    await store.begin([entry(b)], None)
    await store.begin([entry(done)], reservation(done, 1, line(100)))
    await store.finish([entry(done, "outcome")], [Settlement(f"{done}/1", 1)])
    found = await store.orphans()
    assert [orphan.request_id for orphan in found] == [a, b]
    assert (found[0].tenant, found[0].application, found[0].entry.index) == ("acme", "app", 0)
    assert found[0].entry.data == entry(a).data
    assert found[0].open_reservations == (second,)
    assert (found[0].settled, found[0].keyed) == (7, "k" * 64)
    assert (found[1].open_reservations, found[1].settled, found[1].keyed) == ((), 0, None)
    await store.finish([entry(a, "outcome")], [Settlement(second.id, None)], None, outcome(a, keep=False))
    await store.finish([entry(b, "outcome")])
    assert await store.orphans() == []


async def test_a_reservation_left_open_by_a_finished_request_is_an_orphan(store: Store) -> None:
    a = request_id()
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    await store.finish([entry(a, "outcome")])
    (orphan,) = await store.orphans()
    assert orphan.open_reservations == (reservation(a, 60, line(100)),)
    assert orphan.entry.kind == "outcome"
