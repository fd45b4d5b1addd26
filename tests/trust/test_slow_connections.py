"""A few slow connections of each kind are closed in time; uvicorn as it is keeps them, and is caught."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.folder import DataFolder
from tests.harness.plane import Plane
from trust.slow_connections import CLOSED_S, WAYS, bare_uvicorn, closings, judge, prove


async def test_slow_connections_are_closed_and_others_are_served(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.activate(bundle.document(purpose("plain", sim("one"))))
    api_key = folder.issue_key()
    with Plane(folder, access_log=False) as plane, bare_uvicorn() as control_port:
        control = asyncio.create_task(closings(control_port, WAYS, len(WAYS), CLOSED_S - 3))
        said, problems = await prove(plane, api_key, 4 * len(WAYS), 0)
        caught = judge(await control, CLOSED_S)
    assert problems == []
    assert len(caught) == len(WAYS)
    assert len(said) == len(WAYS) + 1
