"""What a place of a type may hold, in words: msgspec says what is wrong with a value, seldom what to write instead.

1. A place is a path of field names (as they are written) and indices; of a union every member that has it counts.
2. A field that only takes a pattern says in its `description` what that comes to; alternatives are listed as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from msgspec import inspect

Step = str | int

_ALTERNATIVES = re.compile(r"\^\(([A-Za-z0-9_|-]+)\)\$")


def instead(kind: Any, path: Sequence[Step], said: str) -> str:
    """What may stand at `path` of a `kind`, given msgspec's words for what is wrong there; "" when it says enough.

    `path` of an unknown field ends in that field.
    """
    if "unknown field" in said:
        fields = sorted({name for place in _places(kind, path[:-1]) for name in _fields(place)})
        small = {field.lower(): field for field in fields}
        near = get_close_matches(str(path[-1]).lower(), small, n=1, cutoff=0.6)
        return f"did you mean {small[near[0]]}?" if near else f"there are {', '.join(fields)}" if fields else ""
    if "Invalid enum value" in said:
        values = list(dict.fromkeys(value for place in _places(kind, path) for value in _choices(place)))
        return f"one of {', '.join(values)}" if values else ""
    if "matching regex" in said:
        return next((words for place in _places(kind, path) for words in _patterned(place)), "")
    return ""


class _Place(NamedTuple):
    """One type that may stand at a place, and what the description around it says."""

    type: inspect.Type
    described: str


def _places(kind: Any, path: Sequence[Step]) -> list[_Place]:
    found = list(_members(inspect.type_info(kind)))
    for step in path:
        found = [member for place in found for inner in _inside(place.type, step) for member in _members(inner)]
    return found


def _members(kind: inspect.Type, described: str = "") -> Iterator[_Place]:
    """The type itself, or all of a union, without what is around them."""
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            yield from _members(inner, str((extra or {}).get("description", "")))
        case inspect.UnionType(types=types):
            for one in types:
                yield from _members(one, described)
        case _:
            yield _Place(kind, described)


def _inside(kind: inspect.Type, step: Step) -> Iterator[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            yield from (field.type for field in fields if field.encode_name == step)
        case (
            inspect.DictType(value_type=inner)
            | inspect.ListType(item_type=inner)
            | inspect.VarTupleType(item_type=inner)
        ):
            yield inner


def _fields(place: _Place) -> Iterator[str]:
    if isinstance(place.type, inspect.StructType):
        yield from (field.encode_name for field in place.type.fields)


def _choices(place: _Place) -> Iterator[str]:
    match place.type:
        case inspect.LiteralType(values=values):
            yield from (str(value) for value in values if value != "")
        case inspect.EnumType(cls=cls):
            yield from (str(one.value) for one in cls)


def _patterned(place: _Place) -> Iterator[str]:
    match place.type:
        case inspect.StrType(pattern=str(pattern)):
            if place.described:
                yield place.described
            elif (listed := _ALTERNATIVES.fullmatch(pattern)) is not None:
                yield f"one of {', '.join(listed[1].split('|'))}"
