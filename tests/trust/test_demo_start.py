"""The demo's first line, once."""

from __future__ import annotations

from pathlib import Path

from trust.demo_start import start_once


def test_the_demo_starts_and_answers(tmp_path: Path) -> None:
    seconds, problems = start_once(tmp_path / "demo")
    assert problems == []
    assert seconds < 10
