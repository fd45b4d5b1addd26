"""What the service needs of a connection: one request as it arrived, and the ways to answer it.

1. A request is answered once: by `reply`, or by `start_stream`, any number of `send_event` and `send_if_free`, and
   `end_stream`.
2. What is written after the caller has left goes nowhere, and raises nothing.
3. A reply after a stream has begun breaks the stream off, so that nobody takes what was sent for whole.
4. No header that the service gives may hold what a caller sent: a wire writes them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

Headers = list[tuple[bytes, bytes]]


class Reply(msgspec.Struct, frozen=True):
    """A whole response: status, headers beside Content-Type and Content-Length, a JSON body."""

    status: int
    headers: Headers
    body: bytes
    content_type: bytes = b"application/json"


class BodyTooLarge(Exception):
    """More bytes than the bound; what was read is dropped."""


class BodyTooSlow(Exception):
    """The body did not arrive in the time given."""


class BodyMalformed(Exception):
    """The body's framing is not HTTP's; where the request ends is unknown."""


class Disconnected(Exception):
    """The caller left before the body was read."""


class Stalled(Exception):
    """The caller took too little of a stream in the time that it had."""


class Wire(Protocol):
    """One request of one connection."""

    @property
    def method(self) -> str:
        """The method, in upper case."""
        ...

    @property
    def raw_path(self) -> bytes:
        """The target's path as it was sent, in ASCII, without query."""
        ...

    @property
    def raw_query(self) -> bytes:
        """The target's query as it was sent, without its question mark; empty when there is none."""
        ...

    @property
    def headers(self) -> Headers:
        """Names in lower case, in order of arrival; trailers are not among them."""
        ...

    @property
    def client(self) -> str | None:
        """The address at the connection's other end, None when it has none."""
        ...

    async def read_body(self, bytes_max: int, timeout_s: float) -> bytes:
        """The whole body, once.

        Raises BodyTooLarge, BodyTooSlow, BodyMalformed, Disconnected.
        """
        ...

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Call back once, when the caller's connection is lost before the answer is complete; at once if it was."""
        ...

    def reply(self, reply: Reply) -> None:
        """Send a whole response."""
        ...

    def start_stream(self, status: int, headers: Headers, time_s: float) -> None:
        """Send the head of a response whose length is unknown, and which has so long to be taken."""
        ...

    async def send_event(self, event: bytes) -> None:
        """Send a piece of it; returns when the connection takes more. `event` is not empty.

        Raises Stalled when it takes no more until the stream's time is over.
        """
        ...

    def send_if_free(self, event: bytes) -> None:
        """Send a piece of it that may as well be left out: it is while the connection takes no more."""
        ...

    def end_stream(self, last: bytes) -> None:
        """Send the last piece, and say that it is the last. A caller that stalled has a moment to take it."""
        ...
