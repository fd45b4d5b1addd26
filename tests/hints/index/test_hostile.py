"""What the hot table is given and should never be: it takes every number at its word, so that none may get there."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import pytest

from terraflow.hints.index import register
from terraflow.hints.index.said import Change, Piece, Row, TenantRule
from terraflow.hints.words import Entry, Report, Scope, Stats

SCOPE = Scope("t", "m", "s")
NOW = 1000.0
FIRST = float(1 << 40)
"""The first place in the order of arrival."""


def report(hashes: list[bytes], **changes: Any) -> Report:
    told = {"replica": "r", "model": "m", "tenant": "t", "scheme": "s"}
    entries = (Entry("", hashes, [16] * len(hashes), 1),)
    return Report(**{**told, "entries": entries, **changes})


def filled_again(index: Any, cap: int) -> bool:
    """Whether the index, told three times as much as it may hold, holds what it should."""
    index.changed = None
    for i in range(3 * cap):
        index.ingest(report([i.to_bytes(8, "big")]), NOW + 10)
    last = (3 * cap - 1).to_bytes(8, "big")
    return index.entries() == cap and len(index.exact(SCOPE, "", last, NOW + 10)) == 1


@pytest.mark.parametrize("kinds", [{"added"}, {"evicted"}, {"added", "evicted"}])
def test_a_listener_that_raises_costs_no_memory_and_no_order(module: ModuleType, kinds: set[str]) -> None:
    cap = 8
    index = module.Index(entries_max=cap)

    def refuse(change: Change) -> None:
        if change.kind in kinds:
            raise LookupError

    index.changed = refuse
    raised = 0
    for i in range(50 * cap):
        try:
            index.ingest(report([i.to_bytes(8, "big")]), NOW)
        except LookupError:
            raised += 1
    assert raised >= 49 * cap
    assert index.entries() <= cap + 1
    assert filled_again(index, cap)


@pytest.mark.parametrize("bad", [[b"\0" * 8, None], [b"\0" * 8, "text"], [b"\0" * 8, 7]])
def test_hashes_that_are_none_are_refused_as_often_as_they_come(module: ModuleType, bad: list[Any]) -> None:
    cap = 8
    index = module.Index(entries_max=cap)
    for _ in range(10 * cap):
        with pytest.raises(TypeError):
            index.ingest(report(bad), NOW)
    assert filled_again(index, cap)


def test_fewer_counts_than_hashes_are_refused(module: ModuleType) -> None:
    index = module.Index(entries_max=8)
    hashes = [i.to_bytes(8, "big") for i in range(4)]
    index.ingest(report(hashes), NOW)
    with pytest.raises(ValueError, match="fewer counts"):
        index.chain(SCOPE, "", hashes, [16], NOW)
    assert index.chain(SCOPE, "", hashes, [16] * 4, NOW)[0].blocks == 4


SOUND = Row(key=0, replica=0, tokens=16, tier=1, age_s=1.0, credits=0, order=FIRST - 1, degraded=False)


def piece(row: Row, **changes: Any) -> Piece:
    told: dict[str, Any] = {
        "until": FIRST,
        "spaces": [("m", "s", "")],
        "replicas": ["r"],
        "hashes": [b"12345678"],
        "key_spaces": [0],
        "rows": [row],
    }
    return Piece(tenant="t", **{**told, **changes})


HOSTILE = {
    "key": piece(SOUND._replace(key=1)),
    "key below": piece(SOUND._replace(key=-1)),
    "replica": piece(SOUND._replace(replica=1)),
    "space": piece(SOUND, key_spaces=[1]),
    "no space": piece(SOUND, key_spaces=[]),
    "no hash": piece(SOUND, hashes=[b""]),
    "long hash": piece(SOUND, hashes=[b"x" * 65]),
    "digest": piece(SOUND, hashes=[b"x" * 65_536], digests=[0]),
    "short digest": piece(SOUND, hashes=[b"x"], digests=[0]),
    "tokens": piece(SOUND._replace(tokens=1 << 31)),
    "tier": piece(SOUND._replace(tier=1 << 30)),
    "tier below": piece(SOUND._replace(tier=-1)),
    "credits": piece(SOUND._replace(credits=1 << 31)),
    "credits below": piece(SOUND._replace(credits=-1)),
    "age": piece(SOUND._replace(age_s=math.nan)),
    "endless age": piece(SOUND._replace(age_s=math.inf)),
    "from the future": piece(SOUND._replace(age_s=-1e9)),
    "order": piece(SOUND._replace(order=math.nan)),
    "endless order": piece(SOUND._replace(order=math.inf)),
    "until": piece(SOUND, until=math.nan),
    "statistics": Piece(tenant="t", until=FIRST, stats=[("m", "r", Stats(pressure=1.0), math.nan)]),
}


def test_a_sound_row_comes_back(module: ModuleType) -> None:
    index = module.Index(entries_max=8)
    index.restore(piece(SOUND), NOW)
    assert index.exact(SCOPE, "", b"12345678", NOW)[0].tokens == 16


@pytest.mark.parametrize("name", HOSTILE)
def test_a_row_that_no_index_wrote_is_left_out(module: ModuleType, name: str) -> None:
    cap = 8
    index = module.Index(entries_max=cap)
    for _ in range(3 * cap):
        index.restore(HOSTILE[name], NOW)
    assert (index.entries(), index.keys(), index.stats("t", "m", "r")) == (0, 0, None)
    assert filled_again(index, cap)


def test_a_block_of_every_prompt_keeps_its_credits(module: ModuleType) -> None:
    index = module.Index(entries_max=2)
    index.govern("t", TenantRule(1800.0, True, None))
    index.restore(piece(SOUND._replace(credits=(1 << 31) - 2)), NOW)
    for _ in range(3):
        index.credit(SCOPE, "", [b"12345678"], "r", NOW)
    for i in range(5):
        index.ingest(report([i.to_bytes(8, "big")]), NOW)
    assert index.exact(SCOPE, "", b"12345678", NOW)


def test_credits_far_in_time_are_credits(module: ModuleType) -> None:
    index = module.Index(entries_max=8, ttl_s=0.1)
    now = 1e9
    index.ingest(report([b"12345678"]), now)
    index.credit(SCOPE, "", [b"12345678"], "r", now)
    index.credit(SCOPE, "", [b"12345678"], "r", now)
    assert index.hot("t", "m", now) == 1


def test_tenants_that_find_no_place_leave_nothing(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    index = module.Index(entries_max=8)
    limits = index.source.__globals__
    monkeypatch.setitem(limits, "SOURCES_MAX", 16)
    for tenant, replica in itertools.product("abcdefgh", "xy"):
        index.ingest(report([], replica=replica, tenant=tenant, stats=Stats()), NOW)
    for i in range(1000):
        assert index.ingest(report([b"12345678"], tenant=f"stranger {i}"), NOW) == (0, 0, 1)
    assert sorted(index.tenants) == sorted("abcdefgh")
    assert limits["SHARE"] == register.SHARE


def test_keys_are_counted_by_model(module: ModuleType) -> None:
    index = module.Index(entries_max=100)
    for tenant, model in itertools.product("tu", "mn"):
        index.ingest(report([b"a", b"b"], tenant=tenant, model=model), NOW)
    index.ingest(report([], model="silent", stats=Stats()), NOW)
    assert index.keys_by_model() == {"m": 4, "n": 4, "silent": 0}
    assert (index.keys(None, "m"), index.keys("t", "m"), index.keys("t", "silent"), index.keys("t")) == (4, 2, 0, 4)


def test_names_have_their_room_each_tenant_its_part(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    index = module.Index(entries_max=1000, ttl_s=1800.0)
    monkeypatch.setitem(index.source.__globals__, "NAMES_MAX", 80_000)
    long = "x" * 900
    refused = 0
    for i in range(20):
        told = report([b"12345678"], replica=f"r{i}{long}", entries=(Entry(f"a{i}", [b"12345678"], [16], 1),))
        refused += index.ingest(told, NOW).refused
    for i in range(20):
        told = report([], scheme=long, entries=(Entry(f"a{i}{long}", [b"12345678"], [16], 1),))
        refused += index.ingest(told, NOW).refused
    assert 20 < refused < 35
    assert index.named["t"] <= 10_000
    assert index.ingest(report([b"12345678"], tenant="other"), NOW) == (1, 0, 0)
    index.sweep(NOW + 4000.0, 1000)
    index.sweep(NOW + 4000.0, 1000)
    assert (index.named, index.named_in_all, index.remembered) == ({}, 0, 0)
