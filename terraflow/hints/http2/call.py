"""What a handler learns of a call beside its messages: who calls, with which metadata, and until when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from terraflow.hints.http2.heads import Head, Metadata


class Peer(NamedTuple):
    """The other end of a connection.

    `address` is the IP address. `certificate` is what `ssl.SSLSocket.getpeercert()` says of a certificate that was
    verified, None without one.
    """

    address: str
    certificate: Mapping[str, Any] | None = None


class Call:
    """One call. `deadline` is in seconds of the monotonic clock, None for a caller that waits forever."""

    __slots__ = ("_head", "deadline", "path", "peer")

    def __init__(self, path: str, head: Head, peer: Peer, deadline: float | None) -> None:
        self.path = path
        self._head = head
        self.peer = peer
        self.deadline = deadline

    @property
    def metadata(self) -> Metadata:
        """The caller's metadata in order, without what belongs to gRPC itself; names that end in -bin hold bytes."""
        return self._head.metadata

    def get(self, name: str) -> str | bytes | None:
        """The first value of that name (lower case), or None."""
        for key, value in self._head.metadata:
            if key == name:
                return value
        return None

    def remaining_s(self) -> float | None:
        """Seconds until the deadline, below 0 when it has passed; None without one."""
        return None if self.deadline is None else self.deadline - time.monotonic()
