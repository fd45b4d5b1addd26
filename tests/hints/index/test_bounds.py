"""What no lookup may cost, however the index was filled and whatever it is asked."""

from __future__ import annotations

from time import perf_counter

from terraflow.hints.index.index import Index
from terraflow.hints.words import Entry, Known, Report, Scope

BLOCK = b"12345678"


def told(index: Index, model: str, replica: str, now: float, tenant: str = "t") -> None:
    entry = Entry("", [BLOCK], [16], 1)
    index.ingest(Report(replica=replica, model=model, tenant=tenant, scheme="s", entries=(entry,)), now)


def test_a_hash_that_is_asked_for_again_and_again_ends_the_run() -> None:
    index = Index(entries_max=2_000)
    for replica in range(1_024):
        told(index, "m", f"r{replica}", 0.0)
    runs = index.chain(Scope("t", "m", "s"), "", [BLOCK] * 65_536, [16] * 65_536, 1.0)
    blocks = (1 << 18) // 1_024
    assert {(held.blocks, held.tokens) for held in runs} == {(blocks, blocks * 16)}
    again = index.chain(Scope("t", "m", "s"), "", [BLOCK] * 3, [16] * 3, 1.0)
    assert len(again) == 1_024 and {held.blocks for held in again} == {3}


def test_what_is_past_its_ttl_and_not_yet_swept_is_not_walked_for_what_is_known() -> None:
    index = Index(entries_max=20_000, ttl_s=100.0)
    for model in range(8_000):
        told(index, f"m{model}", "r", 0.0, "t" if model < 4_000 else "u")
    for now, known in ((99.0, Known.OTHER_MODELS), (200.0, Known.NOTHING)):
        begun = perf_counter()
        for _ in range(20):
            assert index.known("t", "other", "s", now) is known
        assert (perf_counter() - begun) / 20 < 0.002


def test_what_is_known_follows_who_was_told_of_last() -> None:
    index = Index(entries_max=100, ttl_s=100.0)
    told(index, "old", "r", 0.0)
    told(index, "new", "r", 50.0)
    told(index, "old", "r", 60.0)
    told(index, "elsewhere", "r", 70.0, "u")
    index.refresh("t", "new", "r", 80.0)
    assert index.known("t", "other", "s", 155.0) is Known.OTHER_MODELS
    assert index.known("t", "old", "s", 155.0) is Known.SCOPE
    assert index.known("t", "other", "s", 165.0) is Known.OTHER_TENANTS
    assert index.known("t", "other", "s", 175.0) is Known.NOTHING
    told(index, "new", "r", 200.0)
    assert index.known("u", "other", "s", 201.0) is Known.OTHER_TENANTS
