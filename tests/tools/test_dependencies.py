"""What our code imports is pinned by its own name, and docs/dependencies.md says of each why it is there."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("terraflow", "tests", "tools", "trust", "bench")
OURS = {*FOLDERS, "inferencecache_pb2", "inferencecache_pb2_grpc"}
"""The last two a client's own generator makes, from our .proto."""


def same(name: str) -> str:
    """A distribution's name in the one spelling of all that it may have."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    """The file that pins each distribution."""
    found = {}
    for file in sorted((ROOT / "requirements").glob("*.in")):
        for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==", file.read_text(), re.MULTILINE):
            found[same(name)] = file.name
    return found


def needed() -> set[str]:
    """What the package says that it needs."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return {same(re.split("[><=[]", one)[0]) for one in listed}


def imported() -> Iterator[tuple[str, str]]:
    """Each module of others that a file of the repository imports, by its first word, and the file."""
    files = [ROOT / "hatch_build.py", *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))]
    for file in files:
        if "node_modules" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                first = name.partition(".")[0]
                if first not in sys.stdlib_module_names and first not in OURS:
                    yield first, str(file.relative_to(ROOT))


def test_what_is_imported_is_pinned() -> None:
    known, needs, of = set(pinned()), needed(), packages_distributions()
    wild = {
        (name, file)
        for name, file in imported()
        if not (needs if file.startswith("terraflow/") else known) & {same(dist) for dist in of.get(name, [name])}
    }
    assert not wild, (
        "a library that another one happens to bring may go with it: pin it, and list it where it is needed"
    )
    assert needs <= known


def test_what_is_pinned_is_explained() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    named = {same(name) for row in rows for name in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", row[1])}
    assert not pinned().keys() - named
    assert all(row[2].strip() for row in rows)
