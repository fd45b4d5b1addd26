"""What a connection receives and has not read: its windows, and how much may lie there.

1. The connection's window is given back at half, whatever becomes of the bytes: it bounds what is on its way. What is
   kept is bounded by the streams' windows and by two sums, one a connection and one a server.
2. A stream's window is given back as its messages are read, or when the message that has begun needs more of it.
"""

from __future__ import annotations

from terraflow.hints.http2.frames import WINDOW_INITIAL, window_update
from terraflow.hints.http2.messages import Incoming
from terraflow.hints.http2.outbox import Outbox
from terraflow.hints.http2.shared import Shared
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.http2.stream import Stream


class Intake:
    """The inbound bytes of one connection."""

    __slots__ = ("_assembling", "_left", "_limits", "_outbox", "_shared", "_whole")

    def __init__(self, shared: Shared, outbox: Outbox) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._outbox = outbox
        self._assembling = 0
        self._left = WINDOW_INITIAL
        self._whole = max(shared.limits.connection_window_bytes, WINDOW_INITIAL)

    def widen(self) -> None:
        """Tell the peer how large the connection's window is: it begins small for everybody."""
        if self._whole > self._left:
            self._outbox.control(window_update(0, self._whole - self._left))
            self._left = self._whole

    def received(self, size: int) -> None:
        """Bytes of DATA, padding included. Half a window is more than a frame: no peer can be seen to exceed it."""
        self._left -= size
        if self._left < self._whole // 2:
            self.widen()

    def _account(self, size: int) -> None:
        self._assembling += size
        self._shared.assembling += size

    def keep(self, stream: Stream, data: bytes) -> None:
        """Bytes of messages to come; GrpcError when a message, or the sum, is too large."""
        limits = self._limits
        incoming = stream.incoming
        if incoming is None:
            incoming = stream.incoming = Incoming(stream.head.encoding, limits.message_bytes_max)
        if (
            self._assembling + len(data) > limits.assembling_bytes_max
            or self._shared.assembling + len(data) > limits.server_assembling_bytes_max
        ):
            raise GrpcError(Status.RESOURCE_EXHAUSTED, "too many bytes of unread messages")
        self._account(len(data))
        incoming.add(data)

    def take(self, stream: Stream) -> bytes | None:
        """The next whole message of the stream, or None; GrpcError when it cannot be read."""
        incoming = stream.incoming
        if incoming is None:
            return None
        before = len(incoming)
        try:
            message = incoming.take()
        finally:
            self._account(len(incoming) - before)
        if message is not None:
            self.credit(stream)
        return message

    def credit(self, stream: Stream) -> None:
        """Rule 2."""
        if stream.gone or stream.remote_ended:
            return
        whole = self._limits.stream_window_bytes
        incoming = stream.incoming
        unread = len(incoming) if incoming is not None and incoming.complete() else 0
        gain = whole - unread - stream.recv_left
        if gain >= whole // 2:
            stream.recv_left += gain
            self._outbox.control(window_update(stream.id, gain))

    def forget(self, stream: Stream) -> None:
        """The stream is over: what it had not read goes."""
        if stream.incoming is not None:
            self._account(-len(stream.incoming))
            stream.incoming = None
