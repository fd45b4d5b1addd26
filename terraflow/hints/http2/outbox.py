"""What a connection sends: control frames, replies within the peer's windows, and one write for many frames.

1. Frames gather until `flush`, which is one write. `unsent_bytes_high` bounds what gathers and what the transport
   keeps; above it messages wait in their streams, one each at most, and `Connection` stops reading.
2. A stream that the connection's window or the mark stops stands in `_waiting`, in the order of arrival, and takes one
   frame a turn; one that its own window stops waits for its own WINDOW_UPDATE.
3. `answer` is the hot path: a whole reply that fits in the windows is two packed heads around the message.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable

from terraflow.hints.http2.compression import RESPONSE, TABLE_EMPTIED, TRAILERS_OK, trailers, trailers_only
from terraflow.hints.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    HEAD,
    HEADERS,
    WINDOW_INITIAL,
    WINDOW_MAX,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    frame,
)
from terraflow.hints.http2.messages import PREFIX_BYTES
from terraflow.hints.http2.status import Status
from terraflow.hints.http2.stream import Stream

_OPENING = HEAD.pack(0, len(RESPONSE), HEADERS, END_HEADERS, 0)[:5]
_ENDING = HEAD.pack(0, len(TRAILERS_OK), HEADERS, END_HEADERS | END_STREAM, 0)[:5]
_REPLY = struct.Struct(f">5sI{len(RESPONSE)}sHBBBIBI")
_END = struct.Struct(f">5sI{len(TRAILERS_OK)}s")
_PREFIX = struct.Struct(">BI")
_AROUND_BYTES = _REPLY.size + _END.size


class Outbox:
    """The outbound direction of one connection. `ended` is told of each stream whose reply's end has been written."""

    __slots__ = (
        "_ended",
        "_high",
        "_parts",
        "_queued",
        "_table_set",
        "_transport",
        "_waiting",
        "frame_max",
        "initial",
        "paused",
        "window",
    )

    def __init__(self, transport: asyncio.Transport, unsent_bytes_high: int, ended: Callable[[Stream], None]) -> None:
        self._transport = transport
        self._high = unsent_bytes_high
        self._ended = ended
        self._parts: list[bytes] = []
        self._queued = 0
        self._waiting: dict[int, Stream] = {}
        self._table_set = False
        self.window = WINDOW_INITIAL
        self.initial = WINDOW_INITIAL
        self.frame_max = FRAME_BYTES_MAX
        self.paused = False

    def control(self, data: bytes) -> None:
        """Whole frames that no window bounds."""
        self._parts.append(data)
        self._queued += len(data)

    def table_set(self) -> None:
        """The peer has set its table's size: rule 2 of `compression`."""
        self._table_set = True

    def _headers(self, stream: int, block: bytes, flags: int) -> None:
        if self._table_set:
            self._table_set = False
            block = TABLE_EMPTIED + block
        self.control(frame(HEADERS, END_HEADERS | flags, stream, block))

    def refuse(self, stream: int, block: bytes) -> None:
        """A reply that is nothing but its end, on a stream that nothing is kept of."""
        self._headers(stream, block, END_STREAM)

    def answer(self, stream: Stream, message: bytes) -> None:
        """The whole reply of a call that succeeded."""
        length = len(message)
        size = length + PREFIX_BYTES
        if (
            size > self.window
            or size > stream.send_left
            or size > self.frame_max
            or self._queued > self._high
            or self._table_set
            or self._waiting
            or self.paused
        ):
            self.message(stream, message)
            self.end(stream, Status.OK, "")
            return
        self.window -= size
        number = stream.id
        self._parts += (
            _REPLY.pack(_OPENING, number, RESPONSE, size >> 8, size & 0xFF, DATA, 0, number, 0, length),
            message,
            _END.pack(_ENDING, number, TRAILERS_OK),
        )
        self._queued += length + _AROUND_BYTES
        self._ended(stream)

    def open(self, stream: Stream) -> None:
        """The reply's head, once."""
        if not stream.opened:
            stream.opened = True
            self._headers(stream.id, RESPONSE, 0)

    def message(self, stream: Stream, message: bytes) -> None:
        """One message; the one before has gone (`unsent` is None)."""
        self.open(stream)
        stream.unsent = _PREFIX.pack(0, len(message)) + message
        stream.unsent_at = 0
        stream.moved_at = time.monotonic()
        self._pump(stream)

    def end(self, stream: Stream, status: Status, message: str) -> None:
        """The reply's end, behind what is unsent."""
        if not stream.opened:
            stream.opened = True
            stream.closing = trailers_only(200, status, message)
        else:
            stream.closing = trailers(status, message)
        if stream.unsent is None:
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        block = stream.closing
        if block is not None:
            stream.closing = None
            self._headers(stream.id, block, END_STREAM)
            self._ended(stream)

    def _pump(self, stream: Stream, frames_max: int = 1 << 30) -> None:
        """Send of `unsent` what may be sent, and the end behind it."""
        while stream.unsent is not None and frames_max:
            if self.paused or self._queued > self._high or self.window <= 0:
                self._waiting[stream.id] = stream
                return
            at = stream.unsent_at
            size = min(len(stream.unsent) - at, stream.send_left, self.window, self.frame_max)
            if size <= 0:
                return
            self.control(frame(DATA, 0, stream.id, stream.unsent[at : at + size]))
            self.window -= size
            stream.send_left -= size
            stream.unsent_at = at + size
            stream.moved_at = time.monotonic()
            frames_max -= 1
            if stream.unsent_at == len(stream.unsent):
                stream.unsent = None
                stream.wake_writer()
        if stream.unsent is not None:
            self._waiting[stream.id] = stream
        else:
            self._close(stream)

    def forget(self, stream: Stream) -> None:
        """The stream is over: nothing more of it is sent."""
        self._waiting.pop(stream.id, None)
        stream.unsent = stream.closing = None
        stream.wake_writer()

    def gain(self, gain: int) -> None:
        """The peer's WINDOW_UPDATE for the connection."""
        if self.window + gain > WINDOW_MAX:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
        self.window += gain

    def gain_stream(self, stream: Stream, gain: int) -> None:
        """The peer's WINDOW_UPDATE for one stream, or a change of the initial window (which may be negative)."""
        if stream.send_left + gain > WINDOW_MAX:
            raise StreamFault(stream.id, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
        stream.send_left += gain
        if stream.unsent is not None and stream.id not in self._waiting:
            self._pump(stream)

    def flush(self) -> None:
        """Write what has gathered, and go on with those that wait while that is possible."""
        while True:
            if self._parts:
                data = b"".join(self._parts)
                self._parts.clear()
                self._queued = 0
                self._transport.write(data)
            if not self._waiting or self.paused or self.window <= 0:
                return
            waiting, self._waiting = self._waiting, {}
            for stream in waiting.values():
                self._pump(stream, 1)
