"""The stores that the behaviour suite runs over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "disk", "sealed"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> AsyncIterator[SqliteStore]:
    folder = None if request.param == "memory" else tmp_path / "data"
    opened = open_store(folder, clock=clock, answer_key=b"k" * 32 if request.param == "sealed" else None)
    yield opened
    await opened.close()
