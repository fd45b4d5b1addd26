"""One connection: its frames in order, its streams, its end.

1. A ConnectionFault ends the connection with GOAWAY, a StreamFault its stream with RST_STREAM and takes a token; any
   other exception is the server's own fault, is told, and ends this connection alone.
2. Reading stops while the transport is above its mark (`pause_writing`), and after `turn_s` until the loop has
   been round.
3. Every second `_tick` looks for what has waited too long.
4. A stream that has ended while its task still cleans up is an orphan, and counts as a call.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

from terraflow.hints.http2 import patience
from terraflow.hints.http2 import settings as set_
from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.http2.compression import HeaderReader, field, trailers_only
from terraflow.hints.http2.frames import (
    ACK,
    CONTINUATION,
    FRAME_BYTES_MAX,
    HEAD,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_MAX,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    frame,
    goaway,
    rst_stream,
    settings,
)
from terraflow.hints.http2.heads import ENCODINGS, Head
from terraflow.hints.http2.inbound import FRAMES
from terraflow.hints.http2.intake import Intake
from terraflow.hints.http2.limits import Budget
from terraflow.hints.http2.methods import Method
from terraflow.hints.http2.outbox import Outbox
from terraflow.hints.http2.requests import OpenBlock
from terraflow.hints.http2.shared import Shared
from terraflow.hints.http2.status import Status
from terraflow.hints.http2.stream import Stream

_TICK_S = 1.0
_LINGER_S = 1.0
_ABANDONED_MAX = 512
_DRAINING = b"draining"
_ACCEPTED = field(b"grpc-accept-encoding", ",".join(ENCODINGS).encode())


class Connection(asyncio.Protocol):
    """See the module. Attributes are for the sibling modules; the server uses `drain`, `abort` and `tasks`."""

    outbox: Outbox
    intake: Intake
    transport: asyncio.Transport

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop, peer: Peer) -> None:
        self.shared = shared
        self.loop = loop
        self.peer = peer
        self.made = False
        self.reader = HeaderReader(shared.limits)
        self.streams: dict[int, Stream] = {}
        self.abandoned: dict[int, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.orphans = 0
        self.last_stream = 0
        self.open_block: OpenBlock | None = None
        self.refusing = False
        self.leaving = False
        self.now = time.monotonic()
        self._budget = Budget()
        self._answered = 0
        self._held = b""
        self._yielded = False
        self._greeted = False
        self.settled = False
        self._closing = False
        self._draining = False
        self._lost = False
        self._flushing = False
        self.quiet_since = self.paused_since = self.now
        self._ticking: asyncio.TimerHandle | None = None
        self._closing_soon: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.made = True
        self.shared.connections.add(self)
        limits = self.shared.limits
        self.transport.set_write_buffer_limits(high=limits.unsent_bytes_high)
        self.outbox = Outbox(self.transport, limits.unsent_bytes_high, self._replied)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.peer = Peer(self.peer.address, tls.getpeercert() or None)
            if tls.selected_alpn_protocol() != "h2":
                self.close(ErrorCode.INADEQUATE_SECURITY, "ALPN did not choose h2")
                return
        self.intake = Intake(self.shared, self.outbox)
        self.outbox.control(settings(set_.announced(limits)))
        self.intake.widen()
        self.outbox.flush()
        self._ticking = self.loop.call_later(_TICK_S, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = self._lost = True
        self.shared.leave(self)
        for timer in (self._ticking, self._closing_soon, self._ending):
            if timer is not None:
                timer.cancel()
        for stream in list(self.streams.values()):
            self.drop(stream)

    def pause_writing(self) -> None:
        self.outbox.paused = True
        self.paused_since = time.monotonic()
        self._set_reading()

    def resume_writing(self) -> None:
        self.outbox.paused = False
        self.outbox.flush()
        self._set_reading()
        if self._yielded:
            self.loop.call_soon(self._go_on)

    def _set_reading(self) -> None:
        if not self._lost and not self.transport.is_closing():
            if self.outbox.paused or self._yielded:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._held:
            data = self._held + data
            self._held = b""
        if self._yielded:
            self._held = data
            return
        self.now = time.monotonic()
        try:
            self._read(data)
        except ConnectionFault as fault:
            self.close(fault.code, fault.what)
        except Exception as broken:
            self.shared.on_fault("connection", broken)
            self.close(ErrorCode.INTERNAL_ERROR, "the server is at fault")
        self._flush()

    def _go_on(self) -> None:
        if self._yielded and not self.outbox.paused:
            self._yielded = False
            held, self._held = self._held, b""
            self._set_reading()
            self.data_received(held)

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        if not self._greeted:
            at = len(PREFACE)
            if data[:at] != PREFACE[:end]:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the preface is not HTTP/2's")
            if end < at:
                self._held = data
                return
            self._greeted = True
        until = self.now + self.shared.limits.turn_s
        unpack = HEAD.unpack_from
        while end - at >= 9:
            high, low, kind, flags, number = unpack(data, at)
            length = high << 8 | low
            if length > FRAME_BYTES_MAX:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame is too large")
            stop = at + 9 + length
            if stop > end:
                break
            payload = data[at + 9 : stop]
            at = stop
            if self.open_block is not None and kind != CONTINUATION:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "another frame inside a header block")
            if not self.settled:
                if kind != SETTINGS or flags & ACK:
                    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
                self.settled = True
            read = FRAMES.get(kind)
            if read is None:
                self.spend("unknown")
                continue
            try:
                read(self, flags, number & 0x7FFF_FFFF, payload)
            except StreamFault as fault:
                self._reset(fault)
            if time.monotonic() > until:
                self._yielded = True
                self._set_reading()
                if not self.outbox.paused:
                    self.loop.call_soon(self._go_on)
                break
        self._held = data[at:]

    # What frames do.

    def spend(self, bucket: str) -> None:
        """Take a token; a peer without one is too busy with what is no call.

        Two calls that were answered pay for a reset: with short deadlines many are given up while a server is slow.
        """
        if not self._budget.take(bucket, self.now):
            if bucket == "resets" and self._answered >= 2:
                self._answered -= 2
                return
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {bucket}")

    def begin(self, number: int, head: Head, method: Method) -> Stream:
        """A new stream."""
        deadline = None if head.timeout_s is None else self.now + head.timeout_s
        call = Call(head.path, head, self.peer, deadline)
        window = self.shared.limits.stream_window_bytes
        stream = self.streams[number] = Stream(number, head, method, call, window, self.outbox.initial, self.now)
        self.shared.tally["calls"] += 1
        return stream

    def refuse(self, number: int, head: Head, remote_ended: bool) -> None:
        """A call that ends before it begins."""
        refusal = head.refusal
        if refusal is None:
            block = trailers_only(200, Status.UNIMPLEMENTED, f"there is no method {head.path[:256]}")
        else:
            extra = _ACCEPTED if refusal.status is Status.UNIMPLEMENTED else b""
            block = trailers_only(refusal.http_status, refusal.status, refusal.message, extra)
        self.shared.tally["calls"] += 1
        self.outbox.refuse(number, block)
        if not remote_ended:
            self.outbox.control(rst_stream(number, ErrorCode.NO_ERROR))
            self.abandon(number)

    def abandon(self, number: int) -> None:
        """Frames of this stream may still be under way, and mean nothing."""
        self.abandoned[number] = None
        if len(self.abandoned) > _ABANDONED_MAX:
            del self.abandoned[next(iter(self.abandoned))]

    # How streams end.

    def fail(self, stream: Stream, status: Status, message: str) -> None:
        """End the call with this status, unless it has ended."""
        if stream.gone:
            return
        if stream.unsent is not None:
            self.outbox.control(rst_stream(stream.id, ErrorCode.CANCEL))
            self.drop(stream)
            return
        self.outbox.end(stream, status, message)

    def broken(self, stream: Stream, broken: Exception) -> None:
        """A handler raised what it should not have."""
        self.shared.tally["broken"] += 1
        self.shared.on_fault(stream.call.path, broken)
        self.fail(stream, Status.INTERNAL, "the service is at fault")

    def _replied(self, stream: Stream) -> None:
        """The reply's end has been written."""
        self._answered += 1
        if not stream.remote_ended:
            self.outbox.control(rst_stream(stream.id, ErrorCode.NO_ERROR))
        self.drop(stream)

    def drop(self, stream: Stream) -> None:
        """The stream is over: forget it, and cancel what still works for it."""
        if stream.gone:
            return
        stream.gone = True
        del self.streams[stream.id]
        if not stream.remote_ended:
            self.abandon(stream.id)
        self.intake.forget(stream)
        if not self.streams:
            self.quiet_since = self.now
        task = stream.task
        if task is None and stream.unsent is None:
            return
        if stream.timer is not None:
            stream.timer.cancel()
        self.outbox.forget(stream)
        if task is not None and not task.done():
            self.orphans += 1
            if task is not asyncio.current_task(self.loop):
                stream.call.cancelled = True
                task.cancel()

    def task_done(self, stream: Stream) -> None:
        """The stream's task is at its end."""
        if stream.task is not None:
            self.tasks.discard(stream.task)
            stream.task = None
            if stream.gone:
                self.orphans -= 1
        self._flush()

    def _reset(self, fault: StreamFault) -> None:
        if fault.stream > self.last_stream:
            raise ConnectionFault(fault.code, fault.what)
        self.shared.tally[f"reset_{fault.code.name}"] += 1
        self.outbox.control(rst_stream(fault.stream, fault.code))
        stream = self.streams.get(fault.stream)
        if stream is not None:
            self.drop(stream)
        self.abandon(fault.stream)
        self.spend("resets")

    # How the connection ends.

    def flush_soon(self) -> None:
        """Write once the loop comes round."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._closing:
            self.outbox.flush()
            self._close_if_done()

    def close(self, code: ErrorCode, what: str) -> None:
        """Say why, and go: what is under way is given up."""
        if self._closing:
            return
        self._closing = True
        if code is not ErrorCode.NO_ERROR:
            self.shared.tally[f"goaway_{code.name}"] += 1
        for stream in list(self.streams.values()):
            self.drop(stream)
        self._held = b""
        self.outbox.control(goaway(self.last_stream, code, what))
        self.outbox.flush()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._closing_soon = self.loop.call_later(_LINGER_S, self.transport.close)
        else:
            self.transport.close()
        self._ending = self.loop.call_later(2 * _LINGER_S, self.abort)

    def abort(self) -> None:
        """End it without a word."""
        if not self._lost:
            self.transport.abort()

    def drain(self) -> None:
        """Let the calls that are under way end, and no other begin."""
        if self._closing or self._draining:
            return
        self._draining = True
        self.outbox.control(goaway(WINDOW_MAX, ErrorCode.NO_ERROR, "stopping") + frame(PING, 0, 0, _DRAINING))
        self.outbox.flush()
        self.loop.call_later(_LINGER_S, self._refuse)

    def pinged(self, payload: bytes) -> None:
        """The answer to a PING of ours: the peer has read the first GOAWAY."""
        if payload == _DRAINING:
            self._refuse()

    def _refuse(self) -> None:
        if not self._closing and not self.refusing:
            self.refusing = True
            self.outbox.control(goaway(self.last_stream, ErrorCode.NO_ERROR, "stopping"))
            self.outbox.flush()
            self._close_if_done()

    def _close_if_done(self) -> None:
        if (self.leaving or self.refusing) and not self._closing and not self.streams and not self._held:
            self._closing = True
            self.outbox.flush()
            self.transport.close()
            self._ending = self.loop.call_later(self.shared.limits.stalled_s, self.abort)

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        if not self._closing:
            self.now = time.monotonic()
            patience.look(self, self.now)
            self.outbox.flush()
