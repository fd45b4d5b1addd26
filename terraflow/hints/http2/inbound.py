"""From bytes to what they do: a connection's frames in order, as a table by their type.

1. A frame that breaks the protocol is a ConnectionFault and ends the connection with GOAWAY; one that breaks only its
   stream is a StreamFault, ends it with RST_STREAM and takes a token. Any other exception is the server's own fault, is
   told, and ends this connection alone.
2. A frame that makes work without being a call takes a token of its kind (`limits.BUCKETS`). A type that is not in the
   table means nothing, and takes a token.
3. After `turn_s` the turn is yielded: what is left is held back, and nothing more is read, until the loop has been
   round.
4. Every second it is looked for what has waited too long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

from terraflow.hints.http2 import control, patience, requests
from terraflow.hints.http2 import settings as set_
from terraflow.hints.http2.call import Peer
from terraflow.hints.http2.connection import Connection
from terraflow.hints.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    FRAME_BYTES_MAX,
    GOAWAY,
    HEAD,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    rst_stream,
    settings,
)
from terraflow.hints.http2.intake import Intake
from terraflow.hints.http2.outbox import Outbox
from terraflow.hints.http2.shared import Shared

_TICK_S = 1.0

FRAMES: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    DATA: requests.on_data,
    HEADERS: requests.on_headers,
    PRIORITY: control.on_priority,
    RST_STREAM: control.on_rst_stream,
    SETTINGS: control.on_settings,
    PUSH_PROMISE: control.on_push_promise,
    PING: control.on_ping,
    GOAWAY: control.on_goaway,
    WINDOW_UPDATE: control.on_window_update,
    CONTINUATION: requests.on_continuation,
}


class Inbound(Connection):
    """A connection as its transport sees it. `made`: the transport has taken it."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop, peer: Peer) -> None:
        super().__init__(shared, loop, peer)
        self.made = False
        self._held = b""
        self._greeted = False
        self._ticking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.made = True
        self.shared.connections.add(self)
        limits = self.shared.limits
        self.transport.set_write_buffer_limits(high=limits.unsent_bytes_high)
        self.outbox = Outbox(self.transport, limits.unsent_bytes_high, self.replied)
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

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_TICK_S, self._tick)
        if not self.closing:
            self.now = time.monotonic()
            patience.look(self, self.now)
            self.outbox.flush()
