"""Checkpoint lag, for a few records; and a plane that signs too seldom is noticed."""

from __future__ import annotations

from pathlib import Path

from trust.checkpoint_lag import LAG_S, lags


async def test_every_record_is_proved_soon_after(tmp_path: Path) -> None:
    watched = await lags(tmp_path / "data", 12, callers=4)
    assert len(watched.lags) == 12
    assert watched.asked > 50


async def test_a_plane_that_signs_too_seldom_is_noticed(tmp_path: Path) -> None:
    watched = await lags(tmp_path / "data", 4, callers=1, interval_ms=1_500)
    assert watched.lags[-1] > LAG_S
