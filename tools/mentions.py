"""What the pages name must be there: linked files, paths, make targets and commands of ours.

    python -m tools.mentions   fails with every mention of something that does not exist

1. A relative link of a page leads to a file or a folder. (`make docs` checks the anchors as well.)
2. A path in backticks that begins with one of our folders exists. One that holds `*`, `<` or `{` is a pattern, and is
   not looked up.
3. `make X` in backticks is a target; `terraflow X` is a row of the table of commands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from terraflow.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
_PATH = re.compile(r"`((?:\.ci|bench|docs|requirements|terraflow|tests|tools|trust)/[^`\s*<{]*)`")
_MAKE = re.compile(r"`make ([a-z][a-z-]*)")
_COMMAND = re.compile(r"`terraflow ([a-z][a-z-]*)")
_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    """The pages at the repository's root and those below docs/."""
    return sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))


def missing(page: Path, root: Path, targets: frozenset[str], commands: frozenset[str]) -> Iterator[str]:
    """What the page names and nobody has, as it stands in the page."""
    text = page.read_text("utf-8")
    for link in _LINK.findall(_CODE.sub("", text)):
        if not (page.parent / link).exists():
            yield link
    for path in _PATH.findall(text):
        if not (root / path.split("::")[0]).exists():
            yield path
    yield from (f"make {name}" for name in _MAKE.findall(text) if name not in targets)
    yield from (f"terraflow {name}" for name in _COMMAND.findall(text) if name not in commands)


def main(root: Path = ROOT) -> int:
    """The command; returns its exit code."""
    targets = frozenset(_TARGET.findall((root / "Makefile").read_text("utf-8")))
    commands = frozenset(row.name for row in COMMANDS)
    found = [(page, name) for page in pages(root) for name in missing(page, root, targets, commands)]
    for page, name in found:
        print(f"{page.relative_to(root)} names {name}, which is not there: correct the page, or make it true")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
