"""A store that fails, in each of the ways, for a few requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.forked import Forks
from trust.store_down import WAYS, Way, locked, try_way

PATIENCE_S = 20.0
"""How fast it is belongs to the long proof; here it is only that nobody waits for ever."""


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
async def test_nothing_reaches_a_model_and_nobody_waits(way: Way, tmp_path: Path) -> None:
    with Forks() as forks:
        tried = await try_way(way, tmp_path / "data", forks, 40, answer_s=PATIENCE_S)
    assert tried.problems == []
    assert len(tried.seconds) > 30


async def test_a_plane_that_runs_requests_unrecorded_is_caught(tmp_path: Path) -> None:
    with Forks() as forks:
        tried = await try_way(Way("planted", locked, "intent_unwaited"), tmp_path / "data", forks, 20)
    assert any("reached a model" in problem for problem in tried.problems)
