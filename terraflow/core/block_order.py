"""The order of an assistant's blocks, where it is not the usual one: thinking, then text, then tool calls.

1. A model may think again after a call. Whoever signed its thoughts takes them back in no other place than where they
   stood, so a message whose blocks come otherwise has the extension field `block_order`
   (docs/adr/0019-extension-fields.md): one entry a block, its kind, and of a text how many characters it has.
2. An order that does not fit the blocks is the usual one: callers may write what they like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Json = dict[str, Any]

THINKING = "thinking"
"""Redacted thinking too."""
TEXT = "text"
CALL = "tool_use"
_USUAL = {THINKING: 0, TEXT: 1, CALL: 2}

_T = TypeVar("_T")


def order_of(blocks: Sequence[tuple[str, int]]) -> list[Json] | None:
    """The field for blocks of these kinds and lengths, None for the usual order. A text of no length is no block."""
    said = [(kind, length) for kind, length in blocks if kind != TEXT or length]
    places = [_USUAL[kind] for kind, _ in said]
    if places == sorted(places):
        return None
    return [{"type": kind, "characters": length} if kind == TEXT else {"type": kind} for kind, length in said]


def texts_of(order: Sequence[Json] | None, content: str) -> list[str]:
    """A text in the pieces of an order; whole without one, or when it does not fit."""
    pieces: list[str] = []
    at = 0
    for length in (entry.get("characters") or 0 for entry in order or () if entry["type"] == TEXT):
        pieces.append(content[at : at + length])
        at += length
    if at != len(content):
        pieces = [content]
    return [piece for piece in pieces if piece]


def in_order(order: Sequence[Json] | None, thoughts: list[_T], texts: list[_T], calls: list[_T]) -> list[_T]:
    """The blocks of a message, each kind in its own order, in the order of the message."""
    usual = [*thoughts, *texts, *calls]
    if order is None:
        return usual
    kinds = [entry["type"] for entry in order]
    given = ((THINKING, thoughts), (TEXT, texts), (CALL, calls))
    if any(kinds.count(kind) != len(blocks) for kind, blocks in given):
        return usual
    left = {kind: iter(blocks) for kind, blocks in given}
    return [next(left[kind]) for kind in kinds]
