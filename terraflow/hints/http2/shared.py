"""What all connections of one server share: its methods, its bounds, and its counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Methods

if TYPE_CHECKING:
    from terraflow.hints.http2.connection import Connection

OnFault = Callable[[str, BaseException], None]
"""Told what broke (a call's path, or a part of the server) and the exception that nobody expected."""


def unheard(_: str, __: BaseException) -> None:
    """For a server whose owner does not listen."""


class Shared:
    """One server's state. `tally` counts: connections, refused, calls, deadlines, cancelled, broken, and goaway_CODE,
    reset_CODE for what peers did wrong."""

    __slots__ = ("_left", "addresses", "assembling", "connections", "limits", "methods", "on_fault", "tally")

    def __init__(self, methods: Methods, limits: Limits, on_fault: OnFault = unheard) -> None:
        self.methods = methods
        self.limits = limits
        self.on_fault = on_fault
        self.tally: Counter[str] = Counter()
        self.connections: set[Connection] = set()
        self.addresses: Counter[str] = Counter()
        self.assembling = 0
        self._left = asyncio.Event()

    def admit(self, address: str) -> bool:
        """Whether another connection from there may begin; if so it counts until `leave`."""
        limits = self.limits
        if (
            self.addresses.total() >= limits.connections_max
            or self.addresses[address] >= limits.connections_per_address_max
        ):
            self.tally["refused"] += 1
            return False
        self.addresses[address] += 1
        self.tally["connections"] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """A connection that was admitted has ended."""
        self.connections.discard(connection)
        address = connection.peer.address
        self.addresses[address] -= 1
        if self.addresses[address] <= 0:
            del self.addresses[address]
        self._left.set()

    async def emptied(self) -> None:
        """Until there is no connection."""
        while self.connections:
            self._left.clear()
            await self._left.wait()
