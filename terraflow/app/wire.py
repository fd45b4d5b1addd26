"""A request of a connection and its answer, as `gateway.http.wire.Wire` says: a bounded body in, HTTP/1.1 bytes out.

1. A body is taken from the socket only as far as it is wanted: `UNREAD_MAX` before the service asks for it, the
   service's bound after.
2. A whole reply is one write. A stream's pieces that come in one turn of the loop are one write, sent at its end; the
   next waits while the connection takes no more, at most `STALL_S`, and not beyond the stream's time.
3. A connection lives on after an answer only if the request was read to its end, or what is left of it is short.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from terraflow.gateway.http.wire import (
    BodyMalformed,
    BodyTooLarge,
    BodyTooSlow,
    Disconnected,
    Headers,
    Reply,
    Stalled,
)


class Connection(Protocol):
    """What a wire asks of the connection that feeds it."""

    transport: asyncio.Transport
    flow: FlowControl
    loop: asyncio.AbstractEventLoop
    client: tuple[str, int] | None
    server_state: ServerState

    @property
    def draining(self) -> bool:
        """Whether no request is taken after the ones that are here."""
        ...

    def regulate(self) -> None:
        """Read from the socket, or let the caller wait, by what the wires want."""
        ...

    def answered(self, wire: ConnectionWire) -> None:
        """The wire's answer is complete."""
        ...


UNREAD_MAX = 64 * 1024
"""Bytes of a body that are taken before the service asks for it, or discarded when it never does."""
HELD_MAX = 32 * 1024
"""Bytes of a stream that wait for the end of the loop's turn."""
STALL_S = 60.0
"""How long a caller may take no byte of a stream before its connection is given up."""

_HOLD_MAX = sys.maxsize
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_starts: dict[int, tuple[Headers, bytes]] = {}


def start_of(status: int, default_headers: Headers) -> bytes:
    """The status line and uvicorn's own headers, which it replaces once a second by a new list: Date is one of them."""
    made = _starts.get(status)
    if made is None or made[0] is not default_headers:
        lines = [_LINES[status], *(b"%b: %b\r\n" % pair for pair in default_headers)]
        made = _starts[status] = (default_headers, b"".join(lines))
    return made[1]


class ConnectionWire:
    """One request; see `gateway.http.wire.Wire`. Its protocol feeds it."""

    __slots__ = (
        "_body",
        "_body_max",
        "_callback",
        "_chunked",
        "_held",
        "_held_bytes",
        "_protocol",
        "_reading",
        "_size",
        "_until",
        "answered",
        "awaits_continue",
        "broken",
        "client",
        "headers",
        "keep_alive",
        "left",
        "method",
        "raw_path",
        "raw_query",
        "stalled",
        "started",
        "task",
        "whole",
    )

    def __init__(
        self,
        protocol: Connection,
        method: str,
        raw_path: bytes,
        headers: Headers,
        *,
        raw_query: bytes = b"",
        http_1_0: bool,
        keep_alive: bool,
        awaits_continue: bool,
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.raw_query = raw_query
        self.headers = headers
        self.client = protocol.client[0] if protocol.client is not None else None
        self.keep_alive = keep_alive
        self.awaits_continue = awaits_continue
        self.task: asyncio.Task[None] | None = None
        self.whole = False
        self.broken = False
        self.left = False
        self.stalled = False
        self.started = False
        self.answered = False
        self._protocol = protocol
        self._chunked = not http_1_0
        self._body: bytes | bytearray = b""
        self._size = 0
        self._body_max = _HOLD_MAX
        self._reading: asyncio.Future[None] | None = None
        self._callback: Callable[[], None] | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._until = 0.0

    # The request's body, as the protocol receives it.

    def piece(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        self._size += len(piece)
        if self.answered:
            return
        if self._size > self._body_max:
            self._body = b""
            self._wake()
        elif not self._body:
            self._body = piece
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += piece
        if self._size > UNREAD_MAX and self.full:
            self._protocol.regulate()

    @property
    def full(self) -> bool:
        """Whether no more of the body should be taken from the socket now."""
        if self.answered:
            return False
        return self._size > (UNREAD_MAX if self._reading is None else self._body_max)

    def end(self, *, broken: bool = False) -> None:
        """The request is whole, or its rest can never be read."""
        self.broken = broken
        self.whole = not broken
        self._wake()

    def leave(self) -> None:
        """The connection is lost."""
        if self.left:
            return
        self.left = True
        self._wake()
        if self._callback is not None and not self.answered:
            self._callback()

    def _wake(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    # What the service asks.

    async def read_body(self, bytes_max: int, timeout_s: float) -> bytes:
        """See `gateway.http.wire.Wire`."""
        if not self.whole and not self.left and not self.broken:
            await self._arrive(bytes_max, timeout_s)
        if self.left:
            raise Disconnected
        if self._size > bytes_max:
            raise BodyTooLarge
        if self.broken:
            raise BodyMalformed
        body, self._body = self._body, b""
        return bytes(body)

    async def _arrive(self, bytes_max: int, timeout_s: float) -> None:
        if max(self._size, self._length() or 0) > bytes_max:
            raise BodyTooLarge
        protocol = self._protocol
        self._body_max = bytes_max
        self._reading = protocol.loop.create_future()
        if self.awaits_continue:
            self.awaits_continue = False
            protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        protocol.regulate()
        try:
            async with asyncio.timeout(timeout_s):
                await self._reading
        except TimeoutError:
            self.keep_alive = False
            raise BodyTooSlow from None
        finally:
            self._reading = None

    def _length(self) -> int | None:
        """The body's declared length, None when it comes in chunks; its digits were checked by the parser."""
        for name, value in self.headers:
            if name == b"content-length":
                return int(value)
            if name == b"transfer-encoding":
                return None
        return 0

    def on_leave(self, callback: Callable[[], None]) -> None:
        """See `gateway.http.wire.Wire`."""
        self._callback = callback
        if self.left:
            callback()

    # The answer.

    def reply(self, reply: Reply) -> None:
        """See `gateway.http.wire.Wire`."""
        if self.left or self.answered:
            return
        if self.started:
            self._held.clear()
            self._protocol.transport.abort()
            return
        body = reply.body
        length = b"content-length: %d\r\n" % len(body)
        head = self._head(reply.status, [(b"content-type", reply.content_type), *reply.headers], length)
        self._protocol.transport.write(head if self.method == "HEAD" else head + body)
        self._finish()

    def start_stream(self, status: int, headers: Headers, time_s: float) -> None:
        """See `gateway.http.wire.Wire`."""
        if self.left:
            return
        self._until = self._protocol.loop.time() + time_s
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._hold(self._head(status, headers, framing))

    async def send_event(self, event: bytes) -> None:
        """See `gateway.http.wire.Wire`."""
        if self.left:
            return
        self._hold(b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event)
        if self._protocol.flow.write_paused:
            await self._drained()

    def send_if_free(self, event: bytes) -> None:
        """See `gateway.http.wire.Wire`."""
        if not self.left and not self.answered and not self._protocol.flow.write_paused:
            self._hold(b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event)

    def _hold(self, piece: bytes) -> None:
        if not self._held:
            self._protocol.loop.call_soon(self._release)
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > HELD_MAX:
            self._release()

    def _release(self) -> None:
        if self._held and not self.left:
            self._protocol.transport.write(b"".join(self._held))
        self._held.clear()
        self._held_bytes = 0

    async def _drained(self) -> None:
        flow, now = self._protocol.flow, self._protocol.loop.time()
        try:
            async with asyncio.timeout_at(min(now + STALL_S, self._until)):
                await flow.drain()
            return
        except TimeoutError:
            pass
        if now + STALL_S > self._until:
            self.stalled = True
            self.keep_alive = False
            raise Stalled
        self._protocol.transport.abort()
        # The connection's loss ends this wait, and calls who waits for it while it waits.
        await flow.drain()

    def end_stream(self, last: bytes) -> None:
        """See `gateway.http.wire.Wire`."""
        if self.left:
            return
        self._hold(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last) if self._chunked else last)
        self._release()
        self._finish()

    def _head(self, status: int, headers: Headers, framing: bytes) -> bytes:
        self.started = True
        protocol = self._protocol
        if self.keep_alive and (protocol.draining or not (self.whole or self._rest_is_short())):
            self.keep_alive = False
        parts = [start_of(status, protocol.server_state.default_headers)]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(framing)
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def _rest_is_short(self) -> bool:
        if self.broken or self.awaits_continue:
            return False
        length = self._length()
        return length is not None and length <= UNREAD_MAX

    def _finish(self) -> None:
        self.answered = True
        self._body = b""
        self._protocol.answered(self)
