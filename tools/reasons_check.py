"""The reason registry is complete, true to the code, and the only place where codes are spelled.

    python -m tools.reasons_check   one line a finding; fails when there is any

1. Every code has a meaning and an action of substance, in words of our own, that no other code has.
2. A code that is not planned is used in the product and was seen over the wire by a test that exists.
3. A planned code is neither.
4. No code is spelled as a string outside the registry, in Python or in SQL.
5. The reference page is what the registry generates.
6. A code of the model API was seen, by a test that exists, at each place where it can occur (`tools/occurrences.py`),
   and nowhere else.

There is no switch to turn a rule off and no list of exceptions.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from terraflow.core.reasons import CODES, PLANNED, REASONS, SURFACES, Reason, Surface, reason
from tools import fresh
from tools.occurrences import OCCURRENCES
from tools.pages import reasons as reasons_page
from tools.wording import copied, reference_wording

REGISTRY = "terraflow/core/reasons.py"
RAISED_BY = "terraflow/core/raised_by.json"
RAISED_AT = "tests/raised_at.json"

MEANING_WORDS_MIN = 8
ACTION_WORDS_MIN = 6
EMPTY_ACTIONS = re.compile(r"(nothing|none|n/?a|no action)\b[^,;]{0,40}$", re.IGNORECASE)

ENUMS = {surface.__name__: surface for surface in SURFACES}
NAMES = frozenset(str(code) for code in CODES)
QUOTED = re.compile(r"""(['"])(?P<name>[A-Z][A-Z0-9_]+)\1""")


class Use(NamedTuple):
    """A code named through its enum."""

    surface: str
    code: str
    where: str


def documented(rows: Iterable[Reason], reference: frozenset[str]) -> Iterator[str]:
    """Findings of rule 1."""
    seen: dict[str, str] = {}
    for row in rows:
        name = f"{row.surface}/{row.code}"
        for field, text, words_min in (
            ("meaning", row.meaning, MEANING_WORDS_MIN),
            ("action", row.action, ACTION_WORDS_MIN),
        ):
            words = re.findall(r"[^\W_]+", text.lower())
            if len(words) < words_min:
                yield f"{name}: its {field} says too little: {len(words)} words, at least {words_min} are wanted"
            if {*words} <= {
                *row.code.lower().split("_"),
                "the",
                "a",
                "an",
                "is",
                "was",
                "this",
                "code",
                "request",
            }:
                yield f"{name}: its {field} only repeats the code's name"
            if not text.rstrip().endswith((".", "!", "?")):
                yield f"{name}: its {field} is not a whole sentence"
            if field == "action" and EMPTY_ACTIONS.match(text.rstrip(". ")):
                yield f"{name}: its action tells the reader to do nothing; say what can be done with the outcome"
            other = seen.setdefault(" ".join(words), f"{name}'s {field}")
            if other != f"{name}'s {field}":
                yield f"{name}: its {field} is the same text as {other}"
            if run := copied(text, reference):
                yield f"{name}: its {field} has the reference's own words: “{run}”"


def python_sources(root: Path) -> dict[str, ast.Module]:
    """Every module of the product except the registry, parsed, by path below the root."""
    paths = sorted((root / "terraflow").rglob("*.py"))
    return {
        name: ast.parse(path.read_text(), name)
        for path in paths
        if (name := path.relative_to(root).as_posix()) != REGISTRY
    }


def uses(sources: Mapping[str, ast.Module]) -> Iterator[Use]:
    """Every `Governed.X` and its like, also under another name that the enum was imported by."""
    for path, tree in sources.items():
        names = {name: name for name in ENUMS} | {
            alias.asname: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname and alias.name in ENUMS
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in NAMES:
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                if name in names:
                    yield Use(names[name], node.attr, f"{path}:{node.lineno}")


def built(rows: Iterable[Reason], used: Iterable[Use], raised_by: Mapping[str, str]) -> Iterator[str]:
    """Findings of rules 2 and 3, as far as the product and the list of raised codes tell."""
    enum_of = {reason(code).surface: type(code).__name__ for code in CODES}
    places: dict[tuple[str, str], str] = {}
    for use in used:
        places.setdefault((use.surface, use.code), use.where)
    known = set()
    for row in rows:
        name = f"{row.surface}/{row.code}"
        known.add(name)
        place = places.get((enum_of[row.surface], row.code))
        spelled = f"{enum_of[row.surface]}.{row.code}"
        if row.since == PLANNED:
            if place:
                yield f"{place}: {spelled} is used, but its `since` says planned: state the version there"
            if name in raised_by:
                yield f"{name}: its `since` says planned, but {raised_by[name]} saw it: state the version there"
            continue
        if not place:
            yield f"{name}: since {row.since}, but nothing in terraflow/ uses {spelled}"
        if name not in raised_by:
            yield f"{name}: since {row.since}, but no black-box test saw it (run the whole suite: make test)"
    for name in sorted(set(raised_by) - known):
        yield f"{RAISED_BY}: {name} is no code of the registry"


def seen_everywhere(
    rows: Iterable[Reason], occurrences: Mapping[str, Collection[str]], raised_at: Mapping[str, str]
) -> Iterator[str]:
    """Findings of rule 6; `raised_at` is by place and code, with a space between them."""
    table = "tools/occurrences.py"
    raised = {row.code for row in rows if row.surface in (Surface.GOVERNED, Surface.MODEL_API) and row.since != PLANNED}
    for code in sorted(raised - occurrences.keys()):
        yield f"{table}: {code} has no row: say where it can occur"
    for code in sorted(occurrences.keys() - raised):
        yield f"{table}: {code} is none of the model API that is raised by now"
    expected = {f"{place} {code}" for code, places in occurrences.items() for place in places}
    for name in sorted(expected - raised_at.keys()):
        place, _, code = name.partition(" ")
        yield f"{table}: {code} can occur at {place}, but no black-box test saw it there"
    for name in sorted(raised_at.keys() - expected):
        place, _, code = name.partition(" ")
        yield f"{table}: {raised_at[name]} saw {code} at {place}, which its row does not name"


def seen_by_tests_that_exist(raised_by: Mapping[str, str], root: Path, listed: str = RAISED_BY) -> Iterator[str]:
    """Findings of rules 2 and 6 about the tests that a list names, by pytest's ids: a file, the classes and the
    function in it, and parameters in brackets."""
    defined: dict[str, set[str]] = {}
    for name, test in sorted(raised_by.items()):
        path, _, inside = test.partition("::")
        function = inside.partition("[")[0].rpartition("::")[2]
        if path not in defined:
            defined[path] = _functions(root / path) if path.startswith("tests/") else set()
        if function not in defined[path]:
            yield f"{listed}: {name} names {test}, which does not exist (run the whole suite: make test)"


def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text() if file.is_file() else "")
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def spelled(sources: Mapping[str, ast.Module], root: Path) -> Iterator[str]:
    """Findings of rule 4."""
    for path, tree in sources.items():
        documentation = set(_docstrings(tree))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
                continue
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            found = {text} & NAMES
            if node not in documentation:
                found |= {match["name"] for match in QUOTED.finditer(text)} & NAMES
            for name in sorted(found):
                yield f"{path}:{node.lineno}: {name} is spelled as a string; name it through its enum"
    for file in sorted((root / "terraflow").rglob("*.sql")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for name in sorted({match["name"] for match in QUOTED.finditer(line)} & NAMES):
                path = file.relative_to(root).as_posix()
                yield f"{path}:{number}: {name} is spelled in SQL; pass it as a parameter"


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def page_is_fresh(root: Path) -> Iterator[str]:
    """Findings of rule 5."""
    for page in fresh.PAGES:
        if page.generate is reasons_page.page and fresh.stale(page, root):
            yield f"{page.path} is stale: mend it with `make fix`"


def findings(
    root: Path, rows: Iterable[Reason] = REASONS, occurrences: Mapping[str, Collection[str]] = OCCURRENCES
) -> list[str]:
    """Everything that is wrong, one line each."""
    rows = tuple(rows)
    sources = python_sources(root)
    raised_by, raised_at = (_listed(root / name) for name in (RAISED_BY, RAISED_AT))
    return [
        *documented(rows, reference_wording()),
        *built(rows, uses(sources), raised_by),
        *seen_by_tests_that_exist(raised_by, root),
        *seen_everywhere(rows, occurrences, raised_at),
        *seen_by_tests_that_exist(raised_at, root, RAISED_AT),
        *spelled(sources, root),
        *page_is_fresh(root),
    ]


def _listed(path: Path) -> dict[str, str]:
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    wrong = findings(fresh.ROOT)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
