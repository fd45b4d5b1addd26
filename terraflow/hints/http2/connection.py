"""One connection: its frames in order, its streams, its end.

1. A ConnectionFault ends the connection with GOAWAY, a StreamFault its stream with RST_STREAM and takes a token; any
   other exception is the server's own fault, is told, and ends this connection alone.
2. After `turn_s` the turn is yielded: what is left is held back, and nothing more is read, until the loop has been
   round.
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
    PREFACE,
    SETTINGS,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    rst_stream,
    settings,
)
from terraflow.hints.http2.heads import ENCODINGS, Head
from terraflow.hints.http2.inbound import FRAMES
from terraflow.hints.http2.intake import Intake
from terraflow.hints.http2.limits import Budget
from terraflow.hints.http2.link import Link
from terraflow.hints.http2.methods import Method
from terraflow.hints.http2.outbox import Outbox
from terraflow.hints.http2.requests import OpenBlock
from terraflow.hints.http2.shared import Shared
from terraflow.hints.http2.status import Status
from terraflow.hints.http2.stream import Stream

_TICK_S = 1.0
_ABANDONED_MAX = 512
_ACCEPTED = field(b"grpc-accept-encoding", ",".join(ENCODINGS).encode())


class Connection(Link):
    """See the module. Attributes are for the sibling modules; the server uses `made`, `drain`, `abort` and `tasks`."""

    intake: Intake

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop, peer: Peer) -> None:
        super().__init__(shared, loop)
        self.peer = peer
        self.made = False
        self.reader = HeaderReader(shared.limits)
        self.streams: dict[int, Stream] = {}
        self.abandoned: dict[int, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.orphans = 0
        self.open_block: OpenBlock | None = None
        self.now = time.monotonic()
        self._budget = Budget()
        self._answered = 0
        self._held = b""
        self._greeted = False
        self.settled = False
        self.quiet_since = self.heard_at = self.now
        self._ticking: asyncio.TimerHandle | None = None

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
        self.lost()
        self.shared.leave(self)
        if self._ticking is not None:
            self._ticking.cancel()
        self.give_up()

    def data_received(self, data: bytes) -> None:
        if self.closing:
            self._held = b""
            return
        if self._held:
            data = self._held + data
            self._held = b""
        if self.yielded:
            self._held = data
            return
        self.now = self.heard_at = time.monotonic()
        try:
            self._read(data)
        except ConnectionFault as fault:
            self.close(fault.code, fault.what)
        except Exception as broken:
            self.shared.on_fault("connection", broken)
            self.close(ErrorCode.INTERNAL_ERROR, "the server is at fault")
        self.flush()

    def go_on(self) -> None:
        if self.yielded and not self.outbox.paused:
            self.yielded = False
            held, self._held = self._held, b""
            self.set_reading()
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
                self.yielded = True
                self.set_reading()
                if not self.outbox.paused:
                    self.loop.call_soon(self.go_on)
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
                task.cancel()

    def task_done(self, stream: Stream) -> None:
        """The stream's task is at its end."""
        if stream.task is not None:
            self.tasks.discard(stream.task)
            stream.task = None
            if stream.gone:
                self.orphans -= 1
        self.flush()

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

    def give_up(self) -> None:
        for stream in list(self.streams.values()):
            self.drop(stream)

    def at_rest(self) -> bool:
        return not self.streams and not self.yielded

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        if not self.closing:
            self.now = time.monotonic()
            patience.look(self, self.now)
            self.outbox.flush()
