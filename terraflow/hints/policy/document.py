"""YAML to plain values, with the line of every field.

1. What is read is what stands there: duplicate keys, anchors, aliases and tags are refused, so that no file unfolds
   into more than its own size. Several documents a file are fine; an empty one is passed over.
2. YAML 1.2 as JSON has it: null, booleans, decimal integers, text. A date is text; a number with a fraction is
   refused, since the contract writes it in quotes.
3. Size, depth and the number of parts are bounded before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from terraflow.hints.policy.problems import PoliciesRefused, Problem

FILE_BYTES_MAX = 1 << 20
PARTS_MAX = 50_000
DEPTH_MAX = 32

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_OTHER_NUMBER = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|0o[0-7]+|0x[0-9a-fA-F]+"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
"""What YAML 1.2's core schema makes of plain text."""
_SIGN = re.compile(r"""["'](<[a-z ]+>|[^\w\s"']{1,3})["']""")
_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")


def dotted(path: Path) -> str:
    """A place as people write it: `spec.slots[0].type`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


class Document(NamedTuple):
    """A value of one document, and the line (from 1) of each place in it."""

    value: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of a place, or of the nearest that stands around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 0)


def read_documents(raw: bytes, file: str) -> list[Document]:
    """The documents of a file. Raises PoliciesRefused with the one problem that keeps it from being read."""

    def refused(line: int, rule: str) -> PoliciesRefused:
        return PoliciesRefused([Problem(file, line, "", rule)])

    if len(raw) > FILE_BYTES_MAX:
        raise refused(0, f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refused(0, "is not UTF-8") from None
    try:
        documents = list(_Reading(YAML(typ="safe", pure=True).parse(text)).documents())
    except _Unread as unread:
        raise PoliciesRefused([Problem(file, unread.line, dotted(unread.path), unread.rule)]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise refused(0 if mark is None else mark.line + 1, f"is not YAML: {_said(error)}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise refused(0, f"is not YAML ({type(error).__name__})") from None
    return [document for document in documents if document.value is not None]


class _Unread(Exception):
    def __init__(self, line: int, rule: str, path: Path = ()) -> None:
        super().__init__(rule)
        self.line = line
        self.path = path
        self.rule = rule


class _Reading:
    """The events of a file, made into values as they come: nothing is built of what is refused."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._parts = 0

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if isinstance(event, NodeEvent):
                lines: dict[Path, int] = {}
                yield Document(self._value(event, (), 0, lines), lines)

    def _value(self, event: Event, path: Path, depth: int, lines: dict[Path, int]) -> Any:
        line = event.start_mark.line + 1
        lines.setdefault(path, line)
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise _Unread(line, f"has more than {PARTS_MAX} parts")
        if not isinstance(event, (ScalarEvent, CollectionStartEvent)) or event.anchor is not None:
            raise _Unread(line, "has an anchor or an alias: write the value out")
        if event.tag is not None:
            raise _Unread(line, "has a tag: write the value plainly")
        if isinstance(event, ScalarEvent):
            return _scalar(event, path)
        if depth == DEPTH_MAX:
            raise _Unread(line, f"is nested more than {DEPTH_MAX} deep")
        if isinstance(event, SequenceStartEvent):
            return list(self._items(path, depth + 1, lines))
        return dict(self._entries(path, depth + 1, lines))

    def _items(self, path: Path, depth: int, lines: dict[Path, int]) -> Iterator[Any]:
        at = 0
        while not isinstance(event := next(self._events), CollectionEndEvent):
            yield self._value(event, (*path, at), depth, lines)
            at += 1

    def _entries(self, path: Path, depth: int, lines: dict[Path, int]) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        while not isinstance(event := next(self._events), CollectionEndEvent):
            line = event.start_mark.line + 1
            key = self._value(event, path, depth, lines)
            merges = isinstance(event, ScalarEvent) and event.style is None and key == "<<"
            if not isinstance(key, str) or merges:
                raise _Unread(line, "has a key that is not text: put it in quotes")
            if key in seen:
                raise _Unread(line, f"has the key {key[:64]} twice in one mapping")
            seen.add(key)
            lines[*path, key] = line
            yield key, self._value(next(self._events), (*path, key), depth, lines)


def _scalar(event: ScalarEvent, path: Path) -> Any:
    text = str(event.value)
    if _SURROGATE.search(text):
        # JSON in a YAML file escapes what is beyond U+FFFF as a pair.
        try:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise _Unread(event.start_mark.line + 1, "has half of a surrogate pair", path) from None
    if event.style is not None:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_NUMBER.fullmatch(text):
        rule = 'is a number but no plain decimal integer: write it in quotes, such as "0.1"'
        raise _Unread(event.start_mark.line + 1, rule, path)
    return text


def _said(error: MarkedYAMLError) -> str:
    """The parser's words without what it quotes of the file; signs that it expects are YAML's own."""
    return _QUOTED.sub(
        lambda quoted: quoted[0] if _SIGN.fullmatch(quoted[0]) else "…",
        str(error.problem or error.context or "malformed").partition("\n")[0],
    )
