"""Bytes to a bundle's document, with every place listed that does not fit.

1. Entries are converted one by one, so that a bundle with five wrong entries is refused once, not five times.
2. A problem names a path and the rule it breaks, never the value that was found there: it may be a secret put in
   the wrong place.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from terraflow.contracts.document import BundleDocument
from terraflow.core.forms import instead
from terraflow.core.outcome import Problem

PROBLEMS_MAX = 200
"""Problems listed of one document; more are counted."""

_ECHO = re.compile(r"^Invalid enum value ")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]")
_ENTRIES = ("tenants", "applications", "workloads", "contracts", "capabilities", "budgets")


class BundleRejected(Exception):
    """A bundle that is not put in force, with everything that is wrong with it; none of it is a secret."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        listed = problems[:PROBLEMS_MAX]
        more = len(problems) - len(listed)
        lines = [f"{problem.field}: {problem.rule}" for problem in listed]
        super().__init__("\n".join([*lines, f"and {more} more"] if more else lines))
        self.problems = listed


def decode_document(value: Any) -> BundleDocument:
    """The document of a parsed JSON (or YAML) value. Raises BundleRejected with all problems of form."""
    if not isinstance(value, dict):
        raise BundleRejected((Problem("$", "a bundle is an object"),))
    problems: list[Problem] = []
    fields = {field.name: field for field in msgspec.structs.fields(BundleDocument)}
    problems += [Problem(str(name)[:64], "is no field of a bundle") for name in value if name not in fields]
    read: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in value:
            if field.required:
                problems.append(Problem(name, "is required"))
            continue
        if name in _ENTRIES and isinstance(value[name], list):
            read[name] = _entries(name, value[name], field.type.__origin__.__args__[0], problems)
        else:
            read[name] = _converted(name, value[name], field.type, problems)
    if problems:
        raise BundleRejected(tuple(problems))
    return BundleDocument(**read)


def _entries(name: str, values: list[Any], kind: Any, problems: list[Problem]) -> tuple[Any, ...]:
    return tuple(_converted(f"{name}[{_label(value, at)}]", value, kind, problems) for at, value in enumerate(values))


def _label(value: Any, at: int) -> str:
    """An entry's own id where it has a plain one, else its place in the list."""
    found = value.get("id") if isinstance(value, dict) else None
    plain = isinstance(found, str) and re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", found) is not None
    return str(found) if plain else str(at)


def _converted(path: str, value: Any, kind: Any, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at ")
        rule = _rule(kind, said, where)
        where = where.replace("`", "").replace("$", "").removeprefix("key in ")
        problems.append(Problem(f"{path}{where}", rule))
    except RecursionError:
        problems.append(Problem(path, "is nested too deeply"))
    return None


def _rule(kind: Any, said: str, where: str) -> str:
    """What msgspec says of a place, without what it found there, and with what may stand there instead."""
    steps = [int(index) if index else name or key for name, index, key in _STEP.findall(where.rstrip("`"))]
    if _ECHO.match(said):
        return f"is not {instead(kind, steps, said) or 'one of the values it may have'}"
    if (unknown := _UNKNOWN_FIELD.search(said)) is not None:
        remedy = instead(kind, [*steps, unknown[1]], said)
        return f"{said}: {remedy}" if remedy.startswith("did") else said
    return said
