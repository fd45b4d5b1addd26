"""The demo's first line, once."""

from __future__ import annotations

from pathlib import Path

from trust.demo_start import start_once


def test_the_demo_starts_and_answers(tmp_path: Path) -> None:
    seconds, problems = start_once(tmp_path / "demo")
    assert problems == []
    assert seconds < 10


def test_a_demo_that_says_nothing_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    _, problems = start_once(tmp_path / "file")
    assert problems == ["it said nothing"]
