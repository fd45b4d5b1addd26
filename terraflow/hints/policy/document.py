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
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from terraflow.hints.policy.problems import PoliciesRefused, Problem

FILE_BYTES_MAX = 1 << 20
PARTS_MAX = 50_000
DEPTH_MAX = 32

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
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
        _check_events(text)
        nodes = [node for node in YAML(typ="safe", pure=True).compose_all(text) if node is not None]
        documents = []
        for node in nodes:
            lines: dict[Path, int] = {}
            documents.append(Document(_value(node, (), lines), lines))
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


def _check_events(text: str) -> None:
    depth = parts = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, CollectionEndEvent):
            depth -= 1
        if not isinstance(event, NodeEvent):
            continue
        line = event.start_mark.line + 1
        parts += 1
        if parts > PARTS_MAX:
            raise _Unread(line, f"has more than {PARTS_MAX} parts")
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise _Unread(line, "has an anchor or an alias: write the value out")
        if isinstance(event, (ScalarEvent, CollectionStartEvent)) and event.tag is not None:
            raise _Unread(line, "has a tag: write the value plainly")
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise _Unread(line, f"is nested more than {DEPTH_MAX} deep")


def _value(node: Node, path: Path, lines: dict[Path, int]) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, ScalarNode):
        return _scalar(node, path)
    if isinstance(node, SequenceNode):
        return [_value(item, (*path, at), lines) for at, item in enumerate(node.value)]
    assert isinstance(node, MappingNode)
    return dict(_entries(node, path, lines))


def _entries(node: MappingNode, path: Path, lines: dict[Path, int]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode) or key_node.tag != f"{_TAG}str":
            raise _Unread(line, "has a key that is not text: put it in quotes")
        key = str(key_node.value)
        if key in seen:
            raise _Unread(line, f"has the key {key[:64]} twice in one mapping")
        seen.add(key)
        lines[*path, key] = line
        yield key, _value(value_node, (*path, key), lines)


def _scalar(node: ScalarNode, path: Path) -> Any:
    kind = str(node.tag).removeprefix(_TAG)
    if kind in ("str", "timestamp"):
        return str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return node.value.lower() == "true"
    if kind == "int" and _INTEGER.fullmatch(node.value):
        return int(node.value)
    rule = 'is a number but no plain decimal integer: write it in quotes, such as "0.1"'
    raise _Unread(node.start_mark.line + 1, rule, path)


def _said(error: MarkedYAMLError) -> str:
    """The parser's words without what it quotes of the file."""
    return _QUOTED.sub("…", str(error.problem or error.context or "malformed").partition("\n")[0])
