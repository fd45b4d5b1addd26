"""What is wrong with policies, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

PROBLEMS_MAX = 100
"""Problems told of one folder; more are counted."""


def repeated(names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The place and name of each that has been named before."""
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            yield at, name
        seen.add(name)


class Problem(NamedTuple):
    """A place and the rule it breaks. `line` is 0 where a whole file is meant, or where there are no lines (JSON)."""

    file: str
    line: int
    field: str
    rule: str

    def __str__(self) -> str:
        where = ":".join([part for part in (self.file, str(self.line) if self.line else "") if part])
        return ": ".join([part for part in (where, self.field) if part]) + " " + self.rule


class PoliciesRefused(Exception):
    """Policies that are not put in force, with everything that is wrong with them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        every = list(problems)
        self.problems = tuple(every[:PROBLEMS_MAX])
        more = len(every) - len(self.problems)
        lines = [str(problem) for problem in self.problems]
        super().__init__("\n".join([*lines, f"and {more} more"] if more else lines))
