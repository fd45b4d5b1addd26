"""Pages that name what is not there are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import mentions


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text("run: setup\n\t@true\nsetup:\n")
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "api.md").write_text("# API\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[api](docs/api.md#models), [there](https://example.com/x.md), [here](#below)",
        "`docs/api.md`, `docs/adr/`, `docs/<N>.md`, `docs/*.txt`, `make run`, `terraflow reason CODE`",
        "```\n[not a link](nowhere.md)\n``` and `[a-z](nor.this)`",
    ],
)
def test_what_is_there_may_be_named(text: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "README.md").write_text(text)
    assert mentions.main(root) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see [it](docs/apl.md)", "README.md names docs/apl.md"),
        ("the file `docs/adr/0001.md`", "README.md names docs/adr/0001.md"),
        ("`make walk`", "README.md names make walk"),
        ("`terraflow fly --high`", "README.md names terraflow fly"),
    ],
)
def test_what_is_not_there_is_told(text: str, told: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "README.md").write_text(text)
    assert mentions.main(root) == 1
    assert told in capsys.readouterr().out


def test_pages_below_docs_are_read_and_link_from_where_they_are(root: Path) -> None:
    (root / "docs" / "adr" / "0001.md").write_text("[up](../api.md)")
    assert mentions.main(root) == 0
    (root / "docs" / "adr" / "0002.md").write_text("[beside](api.md)")
    assert mentions.main(root) == 1
