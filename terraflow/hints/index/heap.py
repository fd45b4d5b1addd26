"""A heap of numbered items, least first, from which any item can be taken and in which any can move.

1. An item is in at most one of the heaps that share a view `places`; `places[item]` is where it stands, from 1.
2. Keys are two floats, compared in turn; a heap without `pairs` compares the first alone and keeps no second.
3. The file is also compiled (heap.pxd). It MUST keep to what both readings share: flat views and numbers.
"""

from __future__ import annotations

from typing import Any

from terraflow.hints.index.memory import region

_PLACES_FIRST = 4


class Heap:
    """See the module. Four children a node: shallow, and the children lie together."""

    def __init__(self, places: Any, pairs: bool) -> None:
        self.places = places
        self.pairs = pairs
        self.size = 0
        self.room = _PLACES_FIRST
        self.items: Any = region("i", self.room)
        self.majors: Any = region("d", self.room)
        self.minors: Any = region("d", self.room if pairs else 1)

    def _grow(self, room: int) -> None:
        items = region("i", room)
        majors = region("d", room)
        minors = region("d", room if self.pairs else 1)
        items[: self.size] = self.items[: self.size]
        majors[: self.size] = self.majors[: self.size]
        if self.pairs:
            minors[: self.size] = self.minors[: self.size]
        self.items = items
        self.majors = majors
        self.minors = minors
        self.room = room

    def put(self, item: int, major: float, minor: float) -> None:
        """Add an item, or move it to another key."""
        at = self.places[item] - 1
        if at < 0:
            if self.size == self.room:
                self._grow(self.room * 2)
            at = self.size
            self.size = at + 1
            self._up(at, item, major, minor)
        elif major < self.majors[at] or (self.pairs and major == self.majors[at] and minor < self.minors[at]):
            self._up(at, item, major, minor)
        else:
            self._down(at, item, major, minor)

    def drop(self, item: int) -> None:
        """Take an item out; nothing happens when it is not in."""
        at = self.places[item] - 1
        if at < 0:
            return
        self.places[item] = 0
        last = self.size - 1
        self.size = last
        if at == last:
            return
        major = self.majors[last]
        minor = self.minors[last] if self.pairs else 0.0
        moved = self.items[last]
        above = (at - 1) >> 2
        if at > 0 and (
            major < self.majors[above] or (self.pairs and major == self.majors[above] and minor < self.minors[above])
        ):
            self._up(at, moved, major, minor)
        else:
            self._down(at, moved, major, minor)

    def _set(self, at: int, item: int, major: float, minor: float) -> None:
        self.items[at] = item
        self.majors[at] = major
        if self.pairs:
            self.minors[at] = minor
        self.places[item] = at + 1

    def _up(self, at: int, item: int, major: float, minor: float) -> None:
        while at > 0:
            above = (at - 1) >> 2
            theirs = self.majors[above]
            if theirs < major or (theirs == major and (not self.pairs or self.minors[above] <= minor)):
                break
            self._set(at, self.items[above], theirs, self.minors[above] if self.pairs else 0.0)
            at = above
        self._set(at, item, major, minor)

    def _down(self, at: int, item: int, major: float, minor: float) -> None:
        while True:
            child = (at << 2) + 1
            if child >= self.size:
                break
            least = child
            end = min(child + 4, self.size)
            child += 1
            while child < end:
                if self.majors[child] < self.majors[least] or (
                    self.pairs and self.majors[child] == self.majors[least] and self.minors[child] < self.minors[least]
                ):
                    least = child
                child += 1
            theirs = self.majors[least]
            if major < theirs or (major == theirs and (not self.pairs or minor <= self.minors[least])):
                break
            self._set(at, self.items[least], theirs, self.minors[least] if self.pairs else 0.0)
            at = least
        self._set(at, item, major, minor)
