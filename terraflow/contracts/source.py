"""A bundle as people write it: YAML, read into the same document that is signed.

1. One plain document: duplicate keys, anchors, aliases, tags and a second document are refused, so that what is read
   is what stands there, and no source unfolds into more than its own size.
2. A date is text until the document's types read it (RFC 3339, with a zone); money is text, never a float.
3. Size, depth and the number of parts are bounded before anything is built.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent

from terraflow.contracts.decode import BundleRejected, decode_document
from terraflow.contracts.document import BundleDocument
from terraflow.core.outcome import Problem

SOURCE_BYTES_MAX = 4 * 1024 * 1024
PARTS_MAX = 200_000
DEPTH_MAX = 64
"""Bounds of a source: about a thousand workloads, read in some seconds."""

_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")


class _Plain(SafeConstructor):
    """Constructs what JSON has, and leaves dates as text."""


_Plain.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def parse_source(raw: bytes) -> BundleDocument:
    """The document of a YAML source. Raises BundleRejected with every problem of form, and where it is."""
    if len(raw) > SOURCE_BYTES_MAX:
        raise _refused("$", f"is larger than {SOURCE_BYTES_MAX} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _refused("$", "is not UTF-8") from None
    try:
        _check_events(text)
        value: Any = _reader(_Plain).load(text)
    except DuplicateKeyError as error:
        raise _refused(_line(error), "a key stands twice in one mapping") from None
    except MarkedYAMLError as error:
        raise _refused(_line(error), f"is not YAML: {_said(error)}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise _refused("$", f"is not YAML ({type(error).__name__})") from None
    return decode_document(value)


def _reader(constructor: type[SafeConstructor]) -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = constructor
    return reader


def _check_events(text: str) -> None:
    depth = parts = 0
    for event in _reader(SafeConstructor).parse(text):
        if isinstance(event, CollectionEndEvent):
            depth -= 1
        if not isinstance(event, NodeEvent):
            continue
        where = f"line {event.start_mark.line + 1}"
        parts += 1
        if parts > PARTS_MAX:
            raise _refused(where, f"there are more than {PARTS_MAX} parts")
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise _refused(where, "anchors and aliases are not read: write the value out")
        if isinstance(event, (ScalarEvent, CollectionStartEvent)) and event.tag is not None:
            raise _refused(where, "tags are not read: write the value plainly")
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise _refused(where, f"is nested more than {DEPTH_MAX} deep")


def _line(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "$" if mark is None else f"line {mark.line + 1}"


def _said(error: MarkedYAMLError) -> str:
    """The parser's words without what it quotes of the source."""
    return _QUOTED.sub("…", str(error.problem or error.context or "malformed").partition("\n")[0])


def _refused(where: str, rule: str) -> BundleRejected:
    return BundleRejected((Problem(where, rule),))
