"""A template's body: literal text, and slots.

`{{name}}` is a slot, `{{{{` is a literal `{{`; nothing else means anything, `}}` by itself neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPEN = "{{"
_SLOT = re.compile(r"\{\{([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})\}\}")


class MalformedBody(ValueError):
    """A body in which a `{{` begins neither a slot nor a literal."""


class Part(NamedTuple):
    """A piece of a body: literal text, or a slot's name."""

    text: str
    slot: str


def parse_body(body: str) -> list[Part]:
    """The parts of a body in order. Raises MalformedBody."""
    return list(_parts(body))


def _parts(body: str) -> Iterator[Part]:
    at = 0
    while True:
        opened = body.find(_OPEN, at)
        if opened < 0:
            if at < len(body):
                yield Part(body[at:], "")
            return
        if opened > at:
            yield Part(body[at:opened], "")
        if body.startswith(_OPEN, opened + 2):
            yield Part(_OPEN, "")
            at = opened + 4
            continue
        slot = _SLOT.match(body, opened)
        if slot is None:
            line = body.count("\n", 0, opened) + 1
            raise MalformedBody(f"has a {{{{ in its line {line} that is neither {{{{name}}}} nor the literal {{{{{{{{")
        yield Part("", slot[1])
        at = slot.end()
