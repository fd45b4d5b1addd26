"""Tool calls in OpenAI's shape: those of a stream, each at an index of its own and told once; and their ids.

1. Pieces of one index are one call, until a piece brings another id: some engines begin every call of a turn at
   index 0. That call goes on at the next free index, and so do the pieces that follow it without an id, until a piece
   brings an id that was there before.
2. An index that is free stays as it was said.
3. A call's first piece has its id, and the id and the name are not said again: clients join whatever comes. A call
   whose first piece has none is given one, and one that comes late is not heard.
4. A call in the form from before there were tools has no id, which every other form needs: where the request named
   no `functions`, it is told as the first of `tool_calls`.
5. A conversation may go on with another vendor than the one that gave its calls their ids. An id that the next one
   refuses is told in another form, the call's and its result's alike.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Any


def new_call_id() -> str:
    """An id for a call that its vendor gave none, unlike every other of a conversation."""
    return f"call_{secrets.token_hex(12)}"


def renew(said: dict[str, Any], **place: int) -> None:
    """Rule 4, in place; `place` is the call's in a stream."""
    called = said.pop("function_call", None)
    if called is not None and not said.get("tool_calls"):
        kind = {"type": "function"} if called.get("name") else {}
        said["tool_calls"] = [{**place, **kind, "function": called}]


def call_id_for(said: str, fits: re.Pattern[str]) -> str:
    """An id in a form that a vendor takes: as it is if it fits, else always the same other one."""
    return said if fits.fullmatch(said) else f"call_{hashlib.sha256(said.encode()).hexdigest()[:24]}"


class _Call:
    __slots__ = ("at", "id", "name")

    def __init__(self, at: int) -> None:
        self.at = at
        self.id: str | None = None
        self.name: str | None = None


class CallIndices:
    """The indices of one stream's calls, choice by choice."""

    __slots__ = ("_calls", "_current", "_taken")

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], _Call] = {}
        self._calls: dict[tuple[int, int, str], _Call] = {}
        self._taken: dict[int, set[int]] = {}

    def settle(self, choice: int, pieces: Iterable[dict[str, Any]]) -> None:
        """Give each of a choice's next pieces the index of its call, and its call's id and name once, in place."""
        for piece in pieces:
            said, named = piece["index"], piece.get("id") or None
            call = self._current.get((choice, said))
            if call is not None and named is not None and call.id is not None and named != call.id:
                call = self._calls.get((choice, said, named))
            if call is None:
                call = self._begin(choice, said)
                piece["id"] = named or new_call_id()
            else:
                piece.pop("id", None)
            if named is not None:
                call.id = named
                self._calls[choice, said, named] = call
            self._current[choice, said] = call
            piece["index"] = call.at
            _name_once(call, piece)

    def _begin(self, choice: int, said: int) -> _Call:
        taken = self._taken.setdefault(choice, set())
        at = said if said not in taken else max(taken) + 1
        taken.add(at)
        return _Call(at)


def _name_once(call: _Call, piece: dict[str, Any]) -> None:
    for kind in ("function", "custom"):
        told = piece.get(kind)
        if told is None:
            piece.pop(kind, None)
        elif call.name is None:
            call.name = told.get("name") or None
        elif told.get("name") in (call.name, "", None):
            told.pop("name", None)
