"""The ledger over the store's file: what requests append, an integrator publishes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.evidence.log import Integrator, LeafChanged
from terraflow.ports.ledger import LedgerConflict, Tile
from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite import ledger as sqlite_ledger
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import SetClock, entry, request_id

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


async def append(store: SqliteStore, number: int, tenant: str = "acme") -> None:
    for _ in range(number):
        await store.finish([entry(request_id(), "outcome", tenant=tenant)])


async def test_leaves_are_read_as_appended(store: SqliteStore) -> None:
    ledger = store.ledger
    assert (ledger.tenants(), ledger.size("acme"), ledger.checkpoint("acme")) == ([], 0, None)
    assert (ledger.leaves("acme", 0, 9), ledger.tile("acme", 0, 0), list(ledger.checkpoints("acme"))) == ([], None, [])
    await append(store, 3, "globex")
    await append(store, 5)
    assert (ledger.tenants(), ledger.size("acme"), ledger.size("globex")) == (["acme", "globex"], 5, 3)
    assert [leaf.index for leaf in ledger.leaves("acme", 1, 4)] == [1, 2, 3]
    assert [leaf.index for leaf in ledger.leaves("acme", 4, 99)] == [4]
    assert ledger.leaves("acme", 3, 3) == []


async def test_an_integrator_publishes_from_its_thread_while_requests_go_on(store: SqliteStore) -> None:
    integrator = Integrator(store.ledger, KEY, leaves_max=100)
    writing = asyncio.create_task(append(store, 300))
    published = 0
    while published < 300:
        signed, damaged = await asyncio.to_thread(integrator.run_once)
        assert damaged == []
        published = signed[-1].size if signed else published
    await writing
    notes = list(store.ledger.checkpoints("acme"))
    assert notes[-1] == store.ledger.checkpoint("acme") and len(notes) >= 3
    again = Integrator(store.ledger, KEY)
    assert await asyncio.to_thread(again.run_once) == ([], [])


async def test_a_publication_is_whole_and_only_forward(store: SqliteStore) -> None:
    await append(store, 3)

    async def publish(size: int, hashes: bytes, note: bytes, tenant: str = "acme") -> None:
        await asyncio.to_thread(store.ledger.publish, tenant, size, [Tile(0, 0, hashes)], note)

    await publish(2, b"a" * 64, b"two")
    for size, hashes, tenant in (
        (2, b"a" * 96, "acme"),
        (3, b"b" * 96, "acme"),
        (4, b"a" * 96, "acme"),
        (1, b"a" * 32, "x"),
    ):
        with pytest.raises(LedgerConflict):
            await publish(size, hashes, b"no", tenant)
    assert (store.ledger.checkpoint("acme"), store.ledger.tile("acme", 0, 0)) == (b"two", b"a" * 64)
    await publish(3, b"a" * 96, b"three")
    assert list(store.ledger.checkpoints("acme")) == [b"two", b"three"]


async def test_old_checkpoints_are_thinned_and_new_ones_kept(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_ledger, "CHECKPOINTS_KEPT", 3)
    monkeypatch.setattr(sqlite_ledger, "LEAVES_A_CHECKPOINT", 5)
    await append(store, 20)
    for size in range(1, 21):
        await asyncio.to_thread(store.ledger.publish, "acme", size, [], b"%d" % size)
    assert [int(note) for note in store.ledger.checkpoints("acme")] == [1, 5, 10, 15, 18, 19, 20]
    assert store.ledger.checkpoint("acme") == b"20"


async def test_a_changed_leaf_is_not_signed(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    await append(store, 3)
    with sqlite3.connect(tmp_path / DATABASE) as raw:
        raw.execute("UPDATE leaf SET data = x'7b7d' WHERE position & 1")
    raw.close()
    _signed, damaged = await asyncio.to_thread(Integrator(store.ledger, KEY).run_once)
    assert [type(damage) for damage in damaged] == [LeafChanged]
    await store.close()


async def test_a_tool_reads_and_publishes_beside_a_running_plane(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    await append(store, 3)
    with open_tools(tmp_path) as tools:
        assert tools.ledger.size("acme") == 3
        await asyncio.to_thread(tools.ledger.publish, "acme", 3, [Tile(0, 0, b"a" * 96)], b"three")
        with pytest.raises(LedgerConflict):
            tools.ledger.publish("acme", 3, [], b"again")
    assert store.ledger.checkpoint("acme") == b"three"
    await append(store, 1)
    await store.close()
    with pytest.raises(StoreUnavailable):
        store.ledger.size("acme")
