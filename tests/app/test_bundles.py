"""The active bundle of a running plane: what cannot be enforced is told of, tried again, and ends nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from terraflow.app.bundles import AGAIN_S, ActiveBundle
from terraflow.app.opening import bundle_keys
from terraflow.app.settings import Settings
from terraflow.contracts.bundle import Bundle
from terraflow.core.reasons import Governed
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.harness.bundle import document, purpose, sim
from tests.harness.folder import DataFolder
from tests.storage.makers import SetClock


class Reads:
    """A store that counts what is read of it."""

    def __init__(self, real: SqliteStore) -> None:
        self._real = real
        self.envelopes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def active_bundle(self) -> bytes | None:
        self.envelopes += 1
        return await self._real.active_bundle()


class Follows:
    """Whoever follows a bundle, and cannot so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.followed: list[int] = []

    async def __call__(self, bundle: Bundle) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("the fault of a test")
        self.followed.append(bundle.sequence)


def activate(folder: DataFolder) -> None:
    folder.activate(document(purpose("w", sim("m"))))


async def test_a_bundle_that_cannot_be_put_in_force_is_tried_again_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, clock, follows = DataFolder(tmp_path), SetClock(), Follows(2)
    activate(folder)
    store = open_store(tmp_path, clock=clock)
    keys = bundle_keys(Settings(data_dir=str(tmp_path)))
    bundles = ActiveBundle(store, keys, clock, follows)
    with caplog.at_level(logging.ERROR, "terraflow.bundles"):
        for _ in range(2):
            await bundles.refresh()
            assert bundles.active() is Governed.BUNDLE_INVALID
        assert follows.failures == 1, "it was tried again too soon"
        clock.time += int(AGAIN_S * 1e6)
        await bundles.refresh()
    assert [record.message.split(":")[0] for record in caplog.records] == ["bundle 1 cannot be put in force"]
    assert "fault of a test" not in caplog.text
    clock.time += int(AGAIN_S * 1e6)
    await bundles.refresh()
    active = bundles.active()
    assert isinstance(active, Bundle) and follows.followed == [active.sequence] == [1]
    await store.close()


async def test_an_envelope_is_read_once_and_again_when_there_is_a_newer_one(tmp_path: Path) -> None:
    folder, clock, follows = DataFolder(tmp_path), SetClock(), Follows(0)
    activate(folder)
    store = open_store(tmp_path, clock=clock)
    reads = Reads(store)
    keys = bundle_keys(Settings(data_dir=str(tmp_path)))
    bundles = ActiveBundle(reads, keys, clock, follows)  # type: ignore[arg-type]
    for _ in range(5):
        await bundles.refresh()
    assert reads.envelopes == 1
    activate(folder)
    for _ in range(5):
        await bundles.refresh()
    assert reads.envelopes == 2 and follows.followed == [1, 2]
    await store.close()
