"""The tool calls of a stream in OpenAI's shape, each at an index of its own.

1. Pieces of one index are one call, until a piece brings another id: some engines begin every call of a turn at
   index 0. That call goes on at the next free index, and so do the pieces that follow it without an id.
2. An index that is free stays as it was said. An id that comes late, or again, begins nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class CallIndices:
    """The indices of one stream's calls, choice by choice."""

    __slots__ = ("_current", "_taken")

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], tuple[str | None, int]] = {}
        self._taken: dict[int, set[int]] = {}

    def settle(self, choice: int, pieces: Iterable[dict[str, Any]]) -> None:
        """Give each of a choice's next pieces the index of its call, in place."""
        taken = self._taken.setdefault(choice, set())
        for piece in pieces:
            said, named = piece["index"], piece.get("id") or None
            known, at = self._current.get((choice, said), (None, -1))
            if at < 0 or (named is not None and known is not None and named != known):
                at = said if said not in taken else max(taken) + 1
                taken.add(at)
                known = None
            self._current[choice, said] = (named or known, at)
            piece["index"] = at
