"""How much work a JSON Schema can make: an upper bound, known before any answer is seen.

1. A validator visits a part of an answer with a part of the schema. What stays on the same part of the answer
   (`allOf`, `anyOf`, `oneOf`, `not`, `if`, `$ref`, …) is counted once for every way that leads there; what goes on to
   an element or a member is counted for each branch that may take it along. So what falls on one part of an answer,
   `depth` levels down, is a number that follows from the schema alone.
2. The work for a whole answer is at most its parts times the greatest such number, plus its bytes times the greatest
   weight of what reads text (patterns, formats, lengths). With that number fixed it is linear in the answer. A
   recursion that takes one way at each level keeps it fixed; one that branches multiplies it level by level, and the
   answer's depth decides.
3. A schema whose references come back to the same part of the answer has no bound, and is refused; so are keywords
   whose cost cannot be told from where they stand (`unevaluatedProperties`, `$dynamicRef`, …) and an `$id` below the
   root, which would give references another meaning.

A unit is about ten nanoseconds of the validator in use, rounded up. The keywords are those of drafts 4 to 2020-12
together, so that no draft evaluates one that is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from terraflow.core.strict_json import DEPTH_MAX

PATTERNS_MAX = 200
"""Each takes up to 0.3 ms to compile."""
UNITS_CEILING = 1 << 40
"""Where counting ends: far above what any answer may cost."""

_PATTERN_WORST = 250
"""Units a byte of a pattern of `PATTERN_BYTES_MAX` compiled bytes."""
PATTERN_BYTES_MAX = 50_000


class Unbounded(ValueError):
    """No bound can be given; the text says why."""


class _Place(Enum):
    """What a subschema is applied to: the same part, one element or member of several, or any of them."""

    HERE = auto()
    ELEMENT = auto()
    ANY_ELEMENT = auto()
    MEMBER = auto()
    ANY_MEMBER = auto()


def _one(value: Any) -> Sequence[Any]:
    return (value,)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _named(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, dict) else ()


def _one_or_listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else (value,)


# fmt: off
_APPLICATORS: dict[str, tuple[Callable[[Any], Sequence[Any]], _Place]] = {
    "allOf":                (_listed,        _Place.HERE),
    "anyOf":                (_listed,        _Place.HERE),
    "oneOf":                (_listed,        _Place.HERE),
    "not":                  (_one,           _Place.HERE),
    "if":                   (_one,           _Place.HERE),
    "then":                 (_one,           _Place.HERE),
    "else":                 (_one,           _Place.HERE),
    "dependentSchemas":     (_named,         _Place.HERE),
    "dependencies":         (_named,         _Place.HERE),
    "prefixItems":          (_listed,        _Place.ELEMENT),
    "items":                (_one_or_listed, _Place.ELEMENT),
    "additionalItems":      (_one,           _Place.ELEMENT),
    "contains":             (_one,           _Place.ANY_ELEMENT),
    "properties":           (_named,         _Place.MEMBER),
    "additionalProperties": (_one,           _Place.MEMBER),
    "patternProperties":    (_named,         _Place.ANY_MEMBER),
    "propertyNames":        (_one,           _Place.ANY_MEMBER),
}
# fmt: on
_REFUSED = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
_READS_TEXT = {"format": 8, "contentEncoding": 8, "contentMediaType": 8, "minLength": 1, "maxLength": 1}
_FRACTION_UNITS = 1200
_REPEATED = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class _Part:
    """One subschema: where its own subschemas apply, and what it costs itself, a visit and a byte."""

    __slots__ = ("byte_units", "elements", "here", "members", "units")

    def __init__(self, units: int, byte_units: int) -> None:
        self.units, self.byte_units = units, byte_units
        self.here: list[int] = []
        self.elements: tuple[list[int], list[int]] = ([], [])
        self.members: tuple[list[int], list[int]] = ([], [])


class Work(NamedTuple):
    """The greatest units that fall on one part and on one byte of an answer, by the answer's depth; the last counts
    for every greater depth."""

    part_units: Sequence[int]
    byte_units: Sequence[int]

    def units(self, parts: int, size_bytes: int, depth: int) -> int:
        """An upper bound for an answer of that many values and names, bytes of UTF-8, and levels."""
        a_part = self.part_units[min(depth, len(self.part_units) - 1)]
        return parts * a_part + size_bytes * self.byte_units[min(depth, len(self.byte_units) - 1)]


def work_of(schema: dict[str, Any]) -> Work:
    """The bound of a schema. Raises Unbounded."""
    parts = _Reader(schema).parts
    order = _inner_first(parts)
    return Work(
        _by_depth(parts, order, [part.units for part in parts]),
        _by_depth(parts, order, [part.byte_units for part in parts]),
    )


class _Reader:
    """Reads the subschemas that validation can reach, the root first; each once, however many ways lead to it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self.parts = [_Part(1, 0)]
        self._numbers: dict[int, int] = {id(schema): 0}
        self._trivial: int | None = None
        self._whole: int | None = None
        self._patterns = 0
        self._unread: list[tuple[int, dict[str, Any]]] = [(0, schema)]
        while self._unread:
            number, part = self._unread.pop()
            self._read(self.parts[number], part)

    def _number(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            if self._trivial is None:
                self._trivial = self._add(_Part(1, 0))
            return self._trivial
        known = self._numbers.get(id(schema))
        if known is None:
            known = self._numbers[id(schema)] = self._add(_Part(1, 0))
            self._unread.append((known, schema))
        return known

    def _add(self, part: _Part) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def _read(self, part: _Part, schema: dict[str, Any]) -> None:
        if schema is not self._root and (isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)):
            raise Unbounded("has an $id below its root")
        for keyword, value in schema.items():
            if keyword in _REFUSED:
                raise Unbounded(f"uses {keyword}")
            if keyword == "$ref":
                part.here.append(self._number(self._target(value)))
            elif keyword in _APPLICATORS:
                self._apply(part, keyword, value)
            self._weigh(part, keyword, value)

    def _apply(self, part: _Part, keyword: str, value: Any) -> None:
        subschemas, place = _APPLICATORS[keyword]
        numbers = [self._number(inner) for inner in subschemas(value) if isinstance(inner, dict | bool)]
        if place is _Place.HERE:
            part.here += numbers
        else:
            kind = part.elements if place in (_Place.ELEMENT, _Place.ANY_ELEMENT) else part.members
            kind[place in (_Place.ANY_ELEMENT, _Place.ANY_MEMBER)].extend(numbers)

    def _weigh(self, part: _Part, keyword: str, value: Any) -> None:
        part.units += 1
        part.byte_units += _READS_TEXT.get(keyword, 0)
        if keyword == "enum" or keyword == "const":
            part.units += len(msgspec.json.encode(value))
        elif keyword == "pattern" or keyword == "patternProperties":
            for pattern in _one_or_listed(value if keyword == "pattern" else list(value)):
                self._patterns += 1
                part.byte_units += _pattern_units(str(pattern))
        elif keyword == "properties":
            part.units += min(len(value), 40) // 4
        elif keyword == "dependentRequired" or keyword == "dependencies":
            part.units += sum(len(names) for names in _named(value) if isinstance(names, list))
        elif keyword == "multipleOf":
            part.units += 1 if isinstance(value, int) else _FRACTION_UNITS
        elif keyword == "uniqueItems" and value is True:
            self._compare_elements(part)
        if self._patterns > PATTERNS_MAX:
            raise Unbounded(f"has more than {PATTERNS_MAX} patterns")

    def _compare_elements(self, part: _Part) -> None:
        """Elements are compared whole: it is as if a schema looked at everything below, sixteen times."""
        if self._whole is None:
            whole = _Part(16, 16)
            self._whole = self._add(whole)
            whole.elements[0].append(self._whole)
            whole.members[0].append(self._whole)
        part.elements[1].append(self._whole)

    def _target(self, reference: Any) -> Any:
        """What a reference names. Only JSON Pointers into the schema itself (RFC 6901, in a URI fragment) are read."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise Unbounded("has a $ref that is no pointer into the schema itself, such as #/$defs/name")
        at: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict) and name in at:
                at = at[name]
            elif isinstance(at, list) and name.isdigit() and int(name) < len(at):
                at = at[int(name)]
            else:
                raise Unbounded("has a $ref to a part that it does not have")
        return at


def _pattern_units(pattern: str) -> int:
    """Units a byte: the engine follows at most as many states as the pattern has, and each costs some four
    nanoseconds. Repetitions multiply states; the size of the compiled pattern bounds them in any case."""
    states = len(pattern)
    if "\\p" in pattern or "\\P" in pattern:
        return _PATTERN_WORST
    for least, most in _REPEATED.findall(pattern):
        states *= max(1, int(most or least or 1)) if states < UNITS_CEILING else 1
    return min(states, _PATTERN_WORST)


def _inner_first(parts: list[_Part]) -> list[int]:
    """The parts in an order in which those that apply to the same place come before the one that applies them."""
    order: list[int] = []
    state = bytearray(len(parts))
    for start in range(len(parts)):
        path: list[tuple[int, Iterator[int]]] = []
        if not state[start]:
            state[start] = 1
            path.append((start, iter(parts[start].here)))
        while path:
            number, left = path[-1]
            inner = next(left, None)
            if inner is None:
                state[number] = 2
                order.append(number)
                path.pop()
            elif state[inner] == 1:
                raise Unbounded("refers to itself without going deeper into the answer")
            elif state[inner] == 0:
                state[inner] = 1
                path.append((inner, iter(parts[inner].here)))
    return order


def _by_depth(parts: list[_Part], order: list[int], own: list[int]) -> list[int]:
    """The most that one visit of the root brings to any one place at most `depth` levels down, for each depth."""
    most = [0] * len(parts)
    for number in order:
        total = own[number] + sum([most[inner] for inner in parts[number].here])
        most[number] = min(total, UNITS_CEILING)
    by_depth = [most[0]]
    elements, members = [0] * len(parts), [0] * len(parts)
    for _ in range(DEPTH_MAX):
        below = list(most)
        for number in order:
            part = parts[number]
            down = _down(part.elements, most) + sum([elements[inner] for inner in part.here])
            elements[number] = min(down, UNITS_CEILING)
            down = _down(part.members, most) + sum([members[inner] for inner in part.here])
            members[number] = min(down, UNITS_CEILING)
            below[number] = max(most[number], elements[number], members[number])
        if below == most:
            break
        most = below
        by_depth.append(most[0])
    return by_depth


def _down(kind: tuple[list[int], list[int]], most: list[int]) -> int:
    one, every = kind
    if not one and not every:
        return 0
    return max([most[number] for number in one], default=0) + sum([most[number] for number in every])
