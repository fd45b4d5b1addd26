"""A small storm over every kind of limit, some streams that are left, and a racy check of limits that is caught."""

from __future__ import annotations

from pathlib import Path

from tests.harness.forked import Forks
from trust.money_storm import leave_streams, storm


async def test_no_limit_is_exceeded(tmp_path: Path) -> None:
    with Forks() as forks:
        stormed = await storm(tmp_path / "data", 3_000, processes=2, tasks=32, forks=forks)
    assert stormed.problems == []
    assert sum(stormed.codes.values()) == 3_000


async def test_a_check_in_two_steps_is_caught(tmp_path: Path) -> None:
    with Forks() as forks:
        stormed = await storm(tmp_path / "data", 1_500, processes=2, tasks=32, fault="limits_read", forks=forks)
    assert any(" over its limit" in problem for problem in stormed.problems)


async def test_a_stream_that_is_left_is_charged_what_was_used(tmp_path: Path) -> None:
    with Forks() as forks:
        left = await leave_streams(tmp_path / "data", 40, forks=forks)
    assert left.problems == []
    assert len(left.seconds) == 40
