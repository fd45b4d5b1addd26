"""Lines that commands write: whole summaries, progress that fits a pipe, numbers with their words."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from terraflow.app.hints_lint import lint
from terraflow.cli import progress
from terraflow.cli.main import COMMANDS, application


@pytest.mark.parametrize("group", ["", "bundle", "key", "evidence", "hints"])
def test_a_groups_help_cuts_no_summary(group: str) -> None:
    asked = [*([group] if group else []), "--help"]
    shown = CliRunner().invoke(application(asked), asked).stdout
    assert "Commands:" in shown and "..." not in shown.partition("Commands:")[2]
    if not group:
        assert all(row.summary in " ".join(shown.split()) for row in COMMANDS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_goes_over_a_line_at_a_terminal_and_writes_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    written = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with progress.Progress("requests") as told:
        for done in range(25):
            now[0] = float(done)
            told(done, 25)
    if terminal:
        assert written.getvalue().startswith("\r3 of 25 requests") and written.getvalue().endswith("\n")
    else:
        assert written.getvalue() == "10 of 25 requests\n20 of 25 requests\n"


@pytest.mark.parametrize(
    ("labels", "said"), [("{r0: {x: p}}", "1 labelled replica"), ("{a: {}, b: {}}", "2 labelled replicas")]
)
def test_labelled_replicas_are_counted(tmp_path: Path, labels: str, said: str) -> None:
    (tmp_path / "replicas.yaml").write_text(f"replicas: {labels}\n")
    assert lint(tmp_path)[1][0].message == f"the manifests are sound: {said}"
