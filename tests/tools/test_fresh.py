"""Generated files: a stale one fails with its difference, and the command that mends it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import fresh
from tools.pages import reasons

PAGE = fresh.Page("docs/page.md", lambda: "one\ntwo\n")


@pytest.mark.parametrize("kept", [None, "", "one\n", "one\ntwo\nthree\n", "one\n2\n"])
def test_a_stale_file_fails_with_its_difference_until_it_is_written(
    kept: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / PAGE.path
    if kept is not None:
        file.parent.mkdir()
        file.write_text(kept)
    assert fresh.main([], tmp_path, [PAGE]) == 1
    told = capsys.readouterr().out
    assert "@@" in told
    assert "docs/page.md is stale: mend it with `make fix`" in told
    assert (file.read_text() if file.exists() else None) == kept

    assert fresh.main(["--write"], tmp_path, [PAGE]) == 0
    assert file.read_text() == "one\ntwo\n"
    capsys.readouterr()
    assert fresh.main([], tmp_path, [PAGE]) == 0
    assert capsys.readouterr().out == ""


def test_line_ends_count(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / PAGE.path).write_bytes(b"one\r\ntwo")
    assert fresh.main([], tmp_path, [PAGE]) == 1


def test_the_reasons_page_has_every_code_once_a_surface() -> None:
    rows = [line for line in reasons.page().splitlines() if line.startswith("| `") and line.count(" | ") == 6]
    assert len(rows) == 153
    assert sum(line.startswith("| `NOT_FOUND` | 404 |") for line in rows) == 2
    assert any(line.startswith("| `REVIEW_PENDING` | 202; 200 on /v1/chat/completions") for line in rows)
    assert any(line.startswith("| `NO_HINT` | – | hint | no | 0.1.0 |") for line in rows)
    assert any(
        line.startswith("| `ACTION_DEFERRED` | 202 | reserved-action-broker | no | *planned* |") for line in rows
    )


def test_the_reasons_page_explains_every_surface_and_kind() -> None:
    assert set(reasons.SURFACES) == set(reasons.Surface)
    assert set(reasons.KINDS) == set(reasons.Kind)
