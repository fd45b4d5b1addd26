"""What the plain model is too slow or too simple to show: bounds, steps, long hashes, snapshots, memory."""

from __future__ import annotations

import gc
import itertools
from types import ModuleType
from typing import Any

import pytest

from terraflow.hints.index.said import Change, Kind, TenantRule
from terraflow.hints.words import Entry, Known, Report, Scope, Stats

SCOPE = Scope("t", "m", "s")
NOW = 1000.0
TTL_S = 100.0


def blocks(count: int, start: int = 0) -> list[bytes]:
    return [(start + i).to_bytes(8, "big") for i in range(count)]


def report(hashes: list[bytes], replica: str = "r", **changes: Any) -> Report:
    counts = [16 * (i + 1) for i in range(len(hashes))]
    told = {"replica": replica, "model": "m", "tenant": "t", "scheme": "s", "entries": (Entry("", hashes, counts, 1),)}
    return Report(**{**told, **changes})


def held(index: Any, hashes: list[bytes], now: float = NOW) -> dict[str, int]:
    return {one.replica: one.blocks for one in index.chain(SCOPE, "", hashes, [16] * len(hashes), now)}


class TestHashes:
    @pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 1 << 16])
    def test_any_length_matches_itself_alone(self, module: ModuleType, size: int) -> None:
        index = module.Index(entries_max=100)
        ones = [bytes([i]) * size for i in range(3)] + [bytes(size - 1) + b"\x07"]
        assert index.ingest(report(ones), NOW) == (4, 0, 0)
        for one in ones:
            assert len(index.exact(SCOPE, "", one, NOW)) == 1
            assert index.exact(SCOPE, "", one + b"x", NOW) == []
            assert index.exact(SCOPE, "", one[:-1] + b"\xfe", NOW) == []
        assert index.evict("t", "m", "r", ones[1], None, NOW) == 1
        assert [len(index.exact(SCOPE, "", one, NOW)) for one in ones] == [1, 0, 1, 1]

    def test_a_digest_of_32_bytes_is_not_the_long_hash_that_it_is_of(self, module: ModuleType) -> None:
        from hashlib import sha256

        index = module.Index(entries_max=10)
        index.ingest(report([b"x" * 100]), NOW)
        assert index.exact(SCOPE, "", sha256(b"x" * 100).digest(), NOW) == []

    def test_memory_of_hashes_that_left_is_used_again(self, module: ModuleType) -> None:
        index = module.Index(entries_max=20)
        for turn in range(200):
            index.ingest(report([bytes([turn, i]) * 25 for i in range(10)]), NOW)
        newest = [bytes([199, i]) * 25 for i in range(10)]
        assert all(index.exact(SCOPE, "", one, NOW) for one in newest)
        assert index.entries() == 20

    @pytest.mark.parametrize("bad", [[b""], [b"a", b""], [b"x" * ((1 << 16) + 1)]])
    def test_an_empty_or_an_endless_hash_drops_its_entry_only(self, module: ModuleType, bad: list[bytes]) -> None:
        index = module.Index()
        good = Entry("", [b"good"], [16], 1)
        assert index.ingest(report([], entries=(Entry("", bad, [16] * len(bad), 1), good)), NOW) == (1, 0, len(bad))

    def test_counts_of_another_length_drop_the_entry(self, module: ModuleType) -> None:
        index = module.Index()
        assert index.ingest(report([], entries=(Entry("", blocks(3), [16], 1),)), NOW) == (0, 0, 3)
        assert index.known("t", "m", "s", NOW) is Known.NOTHING

    def test_a_count_that_no_wire_carries_is_kept_as_the_greatest(self, module: ModuleType) -> None:
        index = module.Index()
        index.ingest(report([], entries=(Entry("", [b"a", b"b"], [1 << 40, -(1 << 40)], 1),)), NOW)
        (one,), (other,) = (index.exact(SCOPE, "", key, NOW) for key in (b"a", b"b"))
        assert (one.tokens, other.tokens) == ((1 << 31) - 1, -(1 << 31) + 1)


class TestSteps:
    def test_a_large_clear_is_seen_at_once_and_done_in_steps(self, module: ModuleType) -> None:
        index = module.Index(ttl_s=TTL_S)
        told: list[Change] = []
        both = blocks(5000)
        index.ingest(report(both), NOW)
        index.ingest(report(both[:10], "other"), NOW)
        index.changed = told.append
        assert index.clear("t", "m", "r", NOW) == 5000
        assert told == [Change(Kind.CLEARED, "r", "m", "t")]
        assert held(index, both) == {"other": 10}
        assert held(index, both[4000:]) == {}
        assert index.exact(SCOPE, "", both[4999], NOW) == []
        assert index.entries() == 10
        assert list(index.replicas(SCOPE, NOW)) == ["other"]
        waiting = index.keys()
        assert waiting > 10
        index.ingest(report(both[:3]), NOW)
        assert index.keys() < waiting
        assert held(index, both) == {"other": 10, "r": 3}
        while index.keys() > 10:
            index.sweep(NOW, 1000)
        assert index.entries() == 13
        assert index.removals == {("lru", "clear"): 5000}

    def test_what_waits_after_a_clear_makes_room_before_anything_is_evicted(self, module: ModuleType) -> None:
        index = module.Index(entries_max=6000)
        index.ingest(report(blocks(1000), "old"), NOW)
        index.ingest(report(blocks(5000, 10_000), "gone"), NOW)
        index.clear("t", "m", "gone", NOW)
        for start in range(20_000, 25_000, 100):
            index.ingest(report(blocks(100, start), "new"), NOW)
        assert index.removals == {("lru", "clear"): 5000}
        assert held(index, blocks(1000)) == {"old": 1000}

    def test_the_indexs_own_quota_is_that_of_tenants_without_one(self, module: ModuleType) -> None:
        index = module.Index(entries_max=100, ttl_s=TTL_S, keys_per_tenant_max=10)
        index.govern("some", TenantRule(TTL_S, False, 20))
        index.govern("none", TenantRule(TTL_S, False, 0))
        index.govern("aged", TenantRule(TTL_S, True, None))
        index.ingest(report(blocks(10), tenant="first"), NOW)
        for tenant in ("flood", "some", "none", "aged"):
            for start in range(0, 60, 6):
                index.ingest(report(blocks(6, start), tenant=tenant), NOW + start)
        tenants = ("first", "flood", "some", "none", "aged")
        assert [index.keys(tenant) for tenant in tenants] == [10, 10, 20, 0, 10]
        index.govern("some", None)
        index.sweep(NOW + 60, 100)
        assert index.keys("some") == 10

    def test_a_quota_that_falls_is_kept_in_steps(self, module: ModuleType) -> None:
        index = module.Index()
        index.ingest(report(blocks(5000)), NOW)
        index.govern("t", TenantRule(TTL_S, False, 100))
        assert 100 < index.keys("t") < 5000
        assert index.ingest(report(blocks(1, 90_000)), NOW) == (1, 0, 0)
        for _ in range(1000):
            index.sweep(NOW, 1000)
        assert index.keys("t") == 100
        assert held(index, blocks(1, 90_000)) == {"r": 1}
        assert held(index, blocks(1, 4999)) == {"r": 1}

    def test_a_sweep_takes_no_more_than_it_may(self, module: ModuleType) -> None:
        index = module.Index(ttl_s=TTL_S)
        for replica in ("a", "b", "c"):
            index.ingest(report(blocks(100), replica), NOW)
        late = NOW + TTL_S
        assert held(index, blocks(1), late) == {}
        gone = list(itertools.takewhile(lambda step: step > 0, (index.sweep(late, 70) for _ in range(100))))
        assert max(gone) <= 70
        assert sum(gone) == 300
        assert (index.keys(), index.entries()) == (0, 0)
        assert index.removals == {("lru", "ttl"): 300}

    def test_a_stamp_back_only_delays_a_sweep_by_ten_seconds(self, module: ModuleType) -> None:
        index = module.Index(ttl_s=TTL_S)
        index.ingest(report(blocks(5), skew_s=60.0), NOW)
        index.ingest(report(blocks(5, 100), skew_s=-60.0), NOW)
        assert held(index, blocks(1, 100), NOW + TTL_S - 5.0) == {}
        assert held(index, blocks(1), NOW + TTL_S + 4.9) == {"r": 1}
        assert index.sweep(NOW + TTL_S + 5.0, 100) == 10


class TestBounds:
    def test_more_replicas_of_a_model_than_a_table_holds_are_refused(self, module: ModuleType) -> None:
        index = module.Index(entries_max=5000)
        for i in range(1024):
            assert index.ingest(report(blocks(1), f"r{i}"), NOW) == (1, 0, 0)
        assert index.ingest(report(blocks(1), "one more", stats=Stats()), NOW) == (0, 0, 1)
        assert index.stats("t", "m", "one more") is None
        assert index.ingest(report(blocks(1), "r0", model="another"), NOW) == (1, 0, 0)

    def test_one_tenant_leaves_places_to_others(self, module: ModuleType) -> None:
        index = module.Index(entries_max=20_000)
        refused = 0
        for i in range(9000):
            told = report(blocks(1), f"r{i % 900}", model=f"m{i % 10}", scheme=f"s{i}", tenant="greedy")
            refused += index.ingest(told, NOW).refused
        assert refused == 9000 - (1 << 16) // 8
        assert index.ingest(report(blocks(1)), NOW) == (1, 0, 0)

    def test_sources_that_come_and_go_take_no_place(self, module: ModuleType) -> None:
        index = module.Index(entries_max=10)
        for i in range(3000):
            index.ingest(report([], f"r{i}", stats=Stats()), NOW)
            index.clear("t", "m", f"r{i}", NOW)
        assert len(index.sources) < 10
        assert index.remembered == 0

    def test_a_silent_replica_without_entries_is_forgotten_and_makes_room(self, module: ModuleType) -> None:
        index = module.Index(ttl_s=TTL_S)
        index.ingest(report([], stats=Stats(pressure=0.5)), NOW)
        index.sweep(NOW + 599.0, 10)
        assert index.stats("t", "m", "r") == (Stats(pressure=0.5), NOW)
        index.sweep(NOW + 600.0, 10)
        assert index.states(None, None, NOW) == []
        assert index.tenants["t"].places == {}

    def test_nothing_is_left_of_scopes_that_came_and_went(self, module: ModuleType) -> None:
        index = module.Index(entries_max=50)
        for i in range(400):
            index.ingest(report(blocks(1), f"r{i % 7}", scheme=f"s{i}", model=f"m{i % 3}"), NOW)
            index.evict("t", f"m{i % 3}", f"r{i % 7}", blocks(1)[0], None, NOW)
        assert (index.keys(), index.entries()) == (0, 0)
        assert len(index.table.spaces) < 5 and len(index.table.holdings) < 5

    def test_an_index_that_may_hold_nothing_holds_nothing(self, module: ModuleType) -> None:
        index = module.Index(entries_max=0)
        index.ingest(report(blocks(5)), NOW)
        assert (index.entries(), held(index, blocks(1))) == (0, {})

    def test_entries_are_no_objects(self, module: ModuleType) -> None:
        index = module.Index(entries_max=30_000)
        index.ingest(report(blocks(1)), NOW)
        gc.collect()
        before = len(gc.get_objects())
        for start in range(0, 20_000, 500):
            index.ingest(report(blocks(500, start)), NOW)
        gc.collect()
        assert len(gc.get_objects()) - before < 100

    def test_at_the_cap_the_oldest_of_all_tenants_goes(self, module: ModuleType) -> None:
        index = module.Index(entries_max=3000)
        for start in range(0, 9000, 100):
            index.ingest(report(blocks(100, start), tenant=f"t{start // 100 % 3}"), NOW)
        assert index.entries() == 3000
        assert index.keys("t0") == index.keys("t1") == index.keys("t2") == 1000
        newest = blocks(100, 8900)
        assert index.chain(Scope("t2", "m", "s"), "", newest, [16] * 100, NOW)[0].blocks == 100

    def test_a_flood_leaves_what_other_tenants_may_hold(self, module: ModuleType) -> None:
        index = module.Index(entries_max=3000)
        index.govern("flood", TenantRule(TTL_S, False, 2000))
        index.ingest(report(blocks(1000), tenant="quiet"), NOW)
        for start in range(0, 20_000, 100):
            index.ingest(report(blocks(100, start), tenant="flood"), NOW)
        assert (index.keys("quiet"), index.keys("flood")) == (1000, 2000)
        assert index.tenant_removals == {("flood", "quota"): 18_000}


def test_credits_go_with_their_entry(module: ModuleType) -> None:
    index = module.Index(entries_max=3)
    index.govern("t", TenantRule(TTL_S, True, None))
    index.ingest(report([b"a", b"b"]), NOW)
    for _ in range(3):
        index.credit(SCOPE, "", [b"a"], "r", NOW)
    index.credit(SCOPE, "", [b"b"], "r", NOW)
    index.evict("t", "m", "r", b"a", None, NOW)
    index.ingest(report([b"c"]), NOW)
    index.ingest(report([b"d"]), NOW)
    index.ingest(report([b"e"]), NOW)
    assert [bool(index.exact(SCOPE, "", one, NOW)) for one in (b"b", b"c", b"d", b"e")] == [True, False, True, True]


class TestSnapshots:
    def test_pieces_are_small_and_writes_between_them_do_no_harm(self, module: ModuleType) -> None:
        index = module.Index(ttl_s=TTL_S)
        for replica in ("a", "b"):
            index.ingest(report(blocks(2000), replica, stats=Stats(pressure=0.1)), NOW)
        pieces = []
        for turn, piece in enumerate(index.dump(NOW + 1)):
            pieces.append(piece)
            if piece.hashes and turn < 7:
                following = int.from_bytes(piece.hashes[-1], "big") + 1
                index.ingest(report(blocks(5, following), "a"), NOW + 1)
            index.evict_many(SCOPE, "b", None, blocks(3, 1990 - 3 * turn), NOW + 1)
        assert max(len(piece.hashes) for piece in pieces) <= 256
        fresh = module.Index(ttl_s=TTL_S)
        for piece in pieces:
            fresh.restore(piece, 5.0)
        assert set(held(fresh, blocks(1), 5.0)) == {"a", "b"}
        assert held(fresh, blocks(2000), 5.0)["a"] == 2000
        assert fresh.stats("t", "m", "a") == (Stats(pressure=0.1), 4.0)

    def test_ages_are_kept(self, module: ModuleType) -> None:
        index, fresh = module.Index(ttl_s=TTL_S), module.Index(ttl_s=TTL_S)
        index.ingest(report(blocks(3)), NOW)
        index.degrade("t", "m", "r", NOW)
        for piece in index.dump(NOW + 60):
            fresh.restore(piece, 7.0)
        (one,) = fresh.chain(SCOPE, "", blocks(3), [16] * 3, 7.0)
        assert one.seen_at == 7.0 - 60
        assert one.degraded
        assert held(fresh, blocks(3), 7.0 + 39.9) == {"r": 3}
        assert held(fresh, blocks(3), 7.0 + 40) == {}

    def test_what_was_reported_meanwhile_stays_and_is_younger(self, module: ModuleType) -> None:
        index, fresh = module.Index(ttl_s=TTL_S), module.Index(entries_max=4, ttl_s=TTL_S)
        index.ingest(report(blocks(4)), NOW)
        fresh.ingest(report(blocks(1), entries=(Entry("", blocks(1), [99], 2),)), 50.0)
        fresh.ingest(report(blocks(1, 100)), 50.0)
        for piece in index.dump(NOW + 1):
            fresh.restore(piece, 50.0)
        assert fresh.exact(SCOPE, "", blocks(1)[0], 50.0)[0].tokens == 99
        assert held(fresh, blocks(1, 100), 50.0) == {"r": 1}
        assert fresh.entries() == 4
        assert fresh.exact(SCOPE, "", blocks(1, 1)[0], 50.0) == []


def test_a_key_is_hot_for_as_long_as_its_last_credit_but_one_is_young(module: ModuleType) -> None:
    index = module.Index(ttl_s=TTL_S)
    index.ingest(report(blocks(3)), NOW)
    index.credit(SCOPE, "", blocks(3), "r", NOW)
    assert index.hot(now=NOW) == 0
    index.credit(SCOPE, "", blocks(2), "r", NOW + 50)
    assert index.hot("t", "m", NOW + 50) == 2
    index.evict("t", "m", "r", blocks(1)[0], None, NOW + 50)
    assert index.hot("t", None, NOW + 90) == 1
    assert index.hot("t", None, NOW + TTL_S + 2) == 0
    index.credit(SCOPE, "", blocks(2), "r", NOW + 103)
    assert index.hot(None, "m", NOW + 103) == 1


def test_a_listener_that_leaves_is_told_no_more(module: ModuleType) -> None:
    index = module.Index()
    told: list[Change] = []
    index.changed = told.append
    index.ingest(report(blocks(1), stats=Stats()), NOW)
    assert [one.kind for one in told] == [Kind.ADDED, Kind.UPDATED]
    index.changed = None
    index.clear("t", "m", "r", NOW)
    assert len(told) == 2
