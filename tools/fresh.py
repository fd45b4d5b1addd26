"""Generated files: checks that each is what its generator writes now, or writes it.

    python -m tools.fresh          fails with the difference and the command that mends it
    python -m tools.fresh --write  writes whatever is stale

A new generated file is one more row of PAGES.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.pages import bundle, commands, detectors, openapi, reasons, settings, wire

ROOT = Path(__file__).resolve().parents[1]


class Page(NamedTuple):
    """A generated file: its path below the repository's root, and what returns its text."""

    path: str
    generate: Callable[[], str]


PAGES = (
    Page("docs/reference/reason-codes.md", reasons.page),
    Page("docs/reference/bundle.schema.json", bundle.schema),
    Page("docs/reference/bundle.md", bundle.page),
    Page("docs/reference/settings.md", settings.page),
    Page("docs/reference/hints-settings.md", settings.hints_page),
    Page("docs/reference/cli.md", commands.page),
    Page("docs/reference/openapi.json", openapi.text),
    Page("docs/detectors.md", detectors.page),
    *(Page(path, text) for path, text in wire.TEXTS),
)


def stale(page: Page, root: Path = ROOT) -> str:
    """The unified difference between the file and what it ought to be; empty when it is fresh."""
    path = root / page.path
    kept = path.read_bytes().decode() if path.exists() else ""
    was, becomes = f"{page.path} (kept)", f"{page.path} (generated)"
    return "\n".join(difflib.unified_diff(kept.split("\n"), page.generate().split("\n"), was, becomes, lineterm=""))


def write(page: Page, root: Path = ROOT) -> None:
    """Writes the file, and the folders above it."""
    path = root / page.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page.generate().encode())


def main(arguments: Sequence[str], root: Path = ROOT, pages: Sequence[Page] = PAGES) -> int:
    """The command; returns its exit code."""
    differences = [(page, difference) for page in pages if (difference := stale(page, root))]
    for page, difference in differences:
        if "--write" in arguments:
            write(page, root)
            print(f"wrote {page.path}")
        else:
            print(difference)
            print(f"{page.path} is stale: mend it with `make fix` (or python -m tools.fresh --write)")
    return 1 if differences and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
