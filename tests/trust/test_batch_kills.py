"""kill -9 of a plane that runs batches, a few times; and the judge, which must catch what is planted."""

from __future__ import annotations

from pathlib import Path

from trust.batch_kills import kills


async def test_kills_lose_no_batch_and_run_no_item_twice(tmp_path: Path) -> None:
    figures = await kills(tmp_path / "data", 5, seed=1)
    assert figures.problems == []
    assert figures.items["PERMITTED"] > 20


async def test_a_planted_fault_is_caught(tmp_path: Path) -> None:
    figures = await kills(tmp_path / "data", 6, seed=1, fault="entries_unseen")
    assert any("ended as IDEMPOTENCY_REPLAY_NO_CONTENT" in problem for problem in figures.problems)
