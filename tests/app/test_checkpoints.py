"""The thread that signs: what it tells of damage and of failure, and that it goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.app.checkpoints import UNSIGNED_S, Checkpoints
from terraflow.evidence.checkpoint import open_checkpoint
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import SetClock, entry, request_id

KEY = Ed25519PrivateKey.generate()


class Signing:
    """A thread's passes, made by hand, over a store of its own."""

    def __init__(self, folder: Path, clock: SetClock) -> None:
        self.marks = folder / "marks"
        self.clock = clock
        self.database = folder / "data" / "terraflow.db"
        self.store: SqliteStore = open_store(folder / "data", clock=clock)
        self.checkpoints = Checkpoints(self.store.ledger, KEY, self.marks, 0.25, clock.monotonic)

    async def append(self, tenant: str = "acme") -> None:
        await self.store.finish([entry(request_id(), tenant=tenant)])

    async def run_once(self) -> bool:
        return await asyncio.to_thread(self.checkpoints.run_once)

    def later(self, seconds: float) -> None:
        self.clock.time += int(seconds * 1e6)

    def tamper(self) -> None:
        with sqlite3.connect(self.database, timeout=5) as database:
            newest = "(SELECT max(position) FROM leaf WHERE position < 2199023255552)"
            database.execute(f"UPDATE leaf SET data = x'00' WHERE position = {newest}")
        database.close()


async def test_a_damaged_log_is_told_at_once_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    signing = Signing(tmp_path, SetClock())
    await signing.append()
    await signing.append("globex")
    assert await signing.run_once() and signing.checkpoints.trouble() is None
    await signing.append()
    await signing.append("globex")
    signing.tamper()
    for _ in range(3):
        await signing.run_once()
    assert signing.checkpoints.trouble() == "a tenant's log is damaged and is not signed any more"
    [record] = caplog.records
    assert record.levelname == "CRITICAL" and "the log of tenant acme is damaged: leaf 1" in record.getMessage()
    globex = open_checkpoint((signing.marks / "globex.checkpoint").read_bytes(), "globex", KEY.public_key())
    assert globex.size == 2, "the other tenant's log goes on"
    await signing.store.close()


async def test_what_fails_is_tried_again_and_told_after_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signing = Signing(tmp_path, SetClock())
    signing.marks.write_text("no folder")
    await signing.append()
    for _ in range(4):
        assert not await signing.run_once()
        signing.later(UNSIGNED_S / 4)
    assert signing.checkpoints.trouble() is None
    signing.later(1)
    assert signing.checkpoints.trouble() == "no record could be signed for 11 s"
    assert [record.getMessage() for record in caplog.records] == [
        "publishing checkpoints fails, and is tried again: FileExistsError: File exists"
    ]
    signing.marks.unlink()
    await signing.run_once()
    assert signing.checkpoints.trouble() is None
    marked = open_checkpoint((signing.marks / "acme.checkpoint").read_bytes(), "acme", KEY.public_key())
    assert marked.size == 1, "the checkpoint that could not be marked is marked by a later pass"
    assert caplog.messages[-1] == "checkpoints are published again"
    await signing.store.close()


async def test_a_thread_that_hangs_is_told(tmp_path: Path) -> None:
    signing = Signing(tmp_path, SetClock())
    assert signing.checkpoints.trouble() is None
    signing.later(UNSIGNED_S + 1)
    assert signing.checkpoints.trouble() == "no record could be signed for 11 s"
    await signing.store.close()
