"""kill -9 of the whole plane, a few times; and the judge, which must catch what is planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from trust.plane_kills import kills

CAUGHT = {
    "outcome_unwaited": ("recorded is INTERNAL_ERROR", "and is not recorded"),
    "intent_unwaited": ("reached a model and no intent says so",),
    "released_by_recovery": ("was left by a crash and posted at 0",),
    "key_freed_by_recovery": ("times with one key",),
}
"""What the judge says of each fault; which of them depends on the instant of the kill."""

SEEDS = 8
"""Times 8 kills; most faults show in the first."""


async def test_kills_lose_nothing(tmp_path: Path) -> None:
    figures = await kills(tmp_path / "data", 5, seed=1)
    assert figures.problems == []
    assert figures.answered > 20


@pytest.mark.parametrize("fault", list(CAUGHT))
async def test_a_planted_fault_is_caught(fault: str, tmp_path: Path) -> None:
    found: list[str] = []
    for seed in range(SEEDS):
        figures = await kills(tmp_path / f"data-{seed}", 8, seed=seed, fault=fault)
        found += figures.problems
        if any(said in problem for problem in found for said in CAUGHT[fault]):
            return
    pytest.fail(f"not caught; found: {found}")
