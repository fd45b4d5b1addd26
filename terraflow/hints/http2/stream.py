"""One stream: a call on its way in and its reply on the way out; and a head that is not whole yet."""

from __future__ import annotations

import asyncio

from terraflow.hints.http2.call import Call
from terraflow.hints.http2.heads import Head
from terraflow.hints.http2.messages import Incoming
from terraflow.hints.http2.methods import Inline, Method, ServerStream, Unary


class OpenBlock:
    """A header block whose CONTINUATION is to come."""

    __slots__ = ("block", "flags", "since", "stream")

    def __init__(self, stream: int, flags: int, block: bytes, since: float) -> None:
        self.stream = stream
        self.flags = flags
        self.block = bytearray(block)
        self.since = since


class Stream:
    """Kept from the request's head until the reply's end has been written, or the stream was reset.

    `recv_left`, `send_left`: what the peer, and the server, may still send. `unsent` is what is left of the message
    that is being sent, from `unsent_at` on; `closing` the trailers that follow it.
    """

    __slots__ = (
        "born_at",
        "call",
        "closing",
        "gone",
        "head",
        "id",
        "incoming",
        "method",
        "moved_at",
        "one_request",
        "opened",
        "received",
        "recv_left",
        "remote_ended",
        "request_came",
        "room",
        "send_left",
        "task",
        "timer",
        "unsent",
        "unsent_at",
    )

    def __init__(
        self, number: int, head: Head, method: Method, call: Call, recv_left: int, send_left: int, now: float
    ) -> None:
        self.id = number
        self.head = head
        self.method = method
        self.call = call
        self.born_at = self.moved_at = now
        kind = type(method)
        self.one_request = kind is Inline or kind is Unary or kind is ServerStream
        self.incoming: Incoming | None = None
        self.received = 0
        self.recv_left = recv_left
        self.remote_ended = False
        self.request_came: asyncio.Future[None] | None = None
        self.send_left = send_left
        self.opened = False
        self.unsent: bytes | None = None
        self.unsent_at = 0
        self.closing: bytes | None = None
        self.room: asyncio.Future[None] | None = None
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def wake_reader(self) -> None:
        """There is something to read, or the end."""
        if self.request_came is not None and not self.request_came.done():
            self.request_came.set_result(None)

    def wake_writer(self) -> None:
        """The last message has gone."""
        if self.room is not None and not self.room.done():
            self.room.set_result(None)
