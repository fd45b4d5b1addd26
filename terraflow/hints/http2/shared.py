"""What all connections of one server share: its methods, its bounds, and its counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from terraflow.hints.http2.call import Peer
from terraflow.hints.http2.frames import ErrorCode
from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Methods
from terraflow.hints.http2.stream import Stream

ENDING_MAX = 64
"""Connections that were ended to make room and are not gone yet; beyond them nobody is taken in."""

OnFault = Callable[[str, BaseException], None]
"""Told what broke (a call's path, or a part of the server) and the exception that nobody expected."""


def unheard(_: str, __: BaseException) -> None:
    """For a server whose owner does not listen."""


class Admitted(Protocol):
    """What is known here of a connection. `quiet_since`: when its last stream ended, in seconds of `time.monotonic`."""

    peer: Peer
    streams: dict[int, Stream]
    tasks: set[asyncio.Task[None]]
    closing: bool
    quiet_since: float

    def close(self, code: ErrorCode, what: str) -> None: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...


class Shared:
    """One server's state. `tally` counts: connections, refused, displaced, handshakes_failed, calls, deadlines,
    cancelled, stalled, broken, and goaway_CODE, reset_CODE for what peers did wrong. `ending`: those that made room,
    and are counted no more."""

    __slots__ = ("_left", "addresses", "assembling", "connections", "ending", "limits", "methods", "on_fault", "tally")

    def __init__(self, methods: Methods, limits: Limits, on_fault: OnFault = unheard) -> None:
        self.methods = methods
        self.limits = limits
        self.on_fault = on_fault
        self.tally: Counter[str] = Counter()
        self.connections: set[Admitted] = set()
        self.addresses: Counter[str] = Counter()
        self.ending: set[Admitted] = set()
        self.assembling = 0
        self._left = asyncio.Event()

    def admit(self, address: str) -> bool:
        """Whether another connection from there may begin; if so it counts until `leave`."""
        limits = self.limits
        room = self.addresses.get(address, 0) < limits.connections_per_address_max
        if room and self.addresses.total() >= limits.connections_max:
            room = self._make_room()
        if not room:
            self.tally["refused"] += 1
            return False
        self.addresses[address] += 1
        self.tally["connections"] += 1
        return True

    def _make_room(self) -> bool:
        """End the connection that has been without a call for longest; whether there is one.

        It stops to count at once: what is left of it is its last words, which it has seconds to read.
        """
        if len(self.ending) >= ENDING_MAX:
            return False
        idle = [one for one in self.connections if not one.streams and not one.tasks and not one.closing]
        if not idle:
            return False
        idlest = min(idle, key=lambda one: one.quiet_since)
        self.tally["displaced"] += 1
        self.ending.add(idlest)
        self._uncount(idlest)
        idlest.close(ErrorCode.NO_ERROR, "others wait")
        return True

    def leave(self, connection: Admitted) -> None:
        """A connection that was admitted has ended."""
        self.connections.discard(connection)
        if connection in self.ending:
            self.ending.discard(connection)
        else:
            self._uncount(connection)
        self._left.set()

    def _uncount(self, connection: Admitted) -> None:
        address = connection.peer.address
        self.addresses[address] -= 1
        if self.addresses[address] <= 0:
            del self.addresses[address]

    async def emptied(self) -> None:
        """Until there is no connection."""
        while self.connections:
            self._left.clear()
            await self._left.wait()
