"""HTTP/1.1 on a caller's connection: uvicorn's protocol, with our service in the place of an ASGI application.

uvicorn's server accepts, ends TLS, counts connections and tasks, and stops; httptools (llhttp) parses. Ours:

1. A head is whole `HEAD_S` after its first byte, and is bounded while it is read: no more than `HEAD_BYTES_MAX` beyond
   the read in which it began, `HEADERS_MAX` headers, trailers included. The first one begins within `HEAD_S`, the next
   within uvicorn's keep-alive time; else the connection is closed.
2. A refusal of `framing` is a reply like any other, in its turn behind the requests before it. Nothing is read after
   it.
3. Requests are answered one at a time, in order. While one is answered the next is parsed, and then nothing is read;
   of what one read brought, `PIPELINE_MAX` requests at most wait.
4. When the last answer is out before all was read, what the caller still sends is discarded for a moment, so that it
   can read the answer. A short rest of a body that nobody reads has `HEAD_S`.
5. What is left of an answer when it is complete has uvicorn's keep-alive time to be taken, whether the connection is
   kept behind it or closed.
6. A half-closed connection is a caller that left.
7. `Upgrade` is not heard: such a request is plain HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from terraflow.app import framing
from terraflow.app.wire import ConnectionWire
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.faults import place_of
from terraflow.gateway.http.head import HEAD_BYTES_MAX, HEADERS_MAX
from terraflow.gateway.http.replies import ungoverned
from terraflow.gateway.http.wire import Wire

log = logging.getLogger("terraflow.http")

HEAD_S = 10.0
"""How long a head may take: a few hundred bytes over any line."""
LINGER_S = 2.0
"""How long a caller's bytes are discarded behind the last answer."""
LINGER_BYTES_MAX = 16 * 1024 * 1024
"""How many of them: twice the largest body of the default settings."""

_STOPPED = ungoverned(Refuse(reason=Governed.INTERNAL_ERROR), None)


class Refused(Exception):
    """Ends the parser's work from inside one of its callbacks."""


class EdgeProtocol(HttpToolsProtocol):
    """One connection. uvicorn's `config.app` is the service's `handle`; `peer` is who is at the other end, and `lost`
    is called once when the connection is."""

    def __init__(self, *args: Any, peer: tuple[str, int], lost: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._peer = peer
        self._lost = lost
        self._handle = cast("Callable[[Wire], Coroutine[None, None, None]]", self.config.app)
        self.draining = False
        self._current: ConnectionWire | None = None
        self._incoming: ConnectionWire | None = None
        self._waiting: deque[ConnectionWire] = deque()
        self._refusal: Refuse | None = None
        self._deaf = False
        self._discarded = 0
        # The head that is parsed, and the bytes since the parser last told of anything.
        self._in_head = False
        self._upgrading = False
        self._framing: dict[bytes, bytes] = {}
        self._fields = 0
        self._told = 0
        self._untold_bytes = 0
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        # uvicorn asks the socket, which does not know any more when the caller is gone already.
        self.client = self._peer
        self._idle_since = self.loop.time()
        self._idle_timer = self.loop.call_later(min(HEAD_S, self.timeout_keep_alive), self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits, and let go of everything."""
        self.connections.discard(self)
        self._lost()
        self._deaf = True
        self._leave()
        self.flow.resume_writing()
        for timer in (self._idle_timer, self._head_timer, self._linger_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._incoming = None
        self.parser = None  # type: ignore[assignment]

    def eof_received(self) -> None:
        """The caller sends nothing more; returning None closes."""
        self._leave()

    def _leave(self) -> None:
        self._waiting.clear()
        if self._current is not None:
            self._current.leave()

    def shutdown(self) -> None:
        """Close as soon as nothing is being answered."""
        self.draining = True
        if self._current is None or self._current.answered:
            self.transport.close()

    def resume_writing(self) -> None:
        """The caller takes bytes again."""
        super().resume_writing()
        if self._current is None and self._waiting:
            self._advance()

    def _look(self) -> None:
        """Close a connection on which nothing has happened for the keep-alive time, or nothing yet for `HEAD_S`."""
        left, closing = float(self.timeout_keep_alive), self.transport.is_closing()
        if closing or ((self._current is None or self._current.answered) and not self._in_head):
            left += self._idle_since - self.loop.time()
            if not self._told:
                left = 0.0
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._look)
        elif closing or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # What the parser is fed.

    def data_received(self, data: bytes) -> None:
        """Parse."""
        if self._deaf:
            self._discard(len(data))
            return
        told = self._told
        self._feed(data)
        if self._in_head or self._incoming is not None:
            self._untold_bytes = self._untold_bytes + len(data) if self._told == told else 0
            if self._untold_bytes > HEAD_BYTES_MAX:
                self._refuse(framing.TOO_LONG)
            elif self._in_head and self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_plainly(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, Refused):
                log.error("a connection failed: %s", place_of(cause or error))
                self.transport.abort()
            elif not self._deaf:
                self._refuse(self._refusal or framing.MALFORMED)

    def _go_on_plainly(self, rest: bytes) -> None:
        """Go on behind a head with `Upgrade`, whose body llhttp would not read, by a parser that saw its framing."""
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self._framing.items() if name != b"expect"]
        if b"content-length" not in self._framing and b"transfer-encoding" not in self._framing:
            lines.append(b"content-length: 0\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"".join((b"POST / HTTP/1.1\r\n", *lines, b"\r\n")))
        if not self._deaf:
            self._feed(rest)

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES_MAX:
            self.transport.abort()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._in_head or self._deaf:
            return
        if self.flow.read_paused:
            self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)
        else:
            self._refuse(framing.TOO_SLOW)

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._deaf:
            raise Refused
        if self._upgrading:
            return
        self._in_head = True
        self._fields = 0
        self._framing.clear()
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is counted and dropped."""
        self._fields += 1
        if self._fields > HEADERS_MAX:
            self._stop(framing.TOO_MANY)
        if not self._in_head:
            return
        name = name.lower()
        self.headers.append((name, value))
        if name in framing.FRAMING:
            if name in self._framing:
                self._stop(framing.HOST if name == b"host" else framing.MALFORMED)
            self._framing[name] = value

    def on_headers_complete(self) -> None:
        """A request, whose body is still to come."""
        self._told += 1
        if self._upgrading:
            self._upgrading = False
            return
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        parser, said = self.parser, self._framing
        version = parser.get_http_version()
        refusal = framing.refused(version, said)
        if refusal is not None:
            self._stop(refusal)
        path = framing.path_of(self.url, said)
        if isinstance(path, Refuse):
            self._stop(path)
        if len(self._waiting) >= framing.PIPELINE_MAX:
            self._stop(framing.PIPELINED)
        self._upgrading = parser.should_upgrade()
        http_1_0 = version == "1.0"
        wire = self._incoming = ConnectionWire(
            self,
            parser.get_method().decode("ascii"),
            path,
            self.headers,
            raw_query=self.url.partition(b"?")[2],
            http_1_0=http_1_0,
            keep_alive=not http_1_0 and parser.should_keep_alive(),
            awaits_continue=not http_1_0 and said.get(b"expect", b"").lower() == b"100-continue",
        )
        if self._current is None and not self._waiting and not self.flow.write_paused:
            self._start(wire)
        else:
            self._waiting.append(wire)
            self.regulate()

    def _stop(self, refusal: Refuse) -> NoReturn:
        self._refusal = refusal
        raise Refused

    def on_body(self, body: bytes) -> None:
        """A piece of the request's body."""
        self._told += 1
        if self._incoming is not None:
            self._incoming.piece(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        wire = self._incoming
        if self._upgrading or wire is None:
            return
        self._told += 1
        self._untold_bytes = 0
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        self._incoming = None
        self._deaf = not wire.keep_alive
        wire.end()
        if wire.answered:
            self._advance()
        elif self.flow.read_paused:
            self.regulate()

    # Whose turn it is.

    def _start(self, wire: ConnectionWire) -> None:
        self._current = wire
        wire.task = self.loop.create_task(self._run(wire))
        self.tasks.add(wire.task)

    async def _run(self, wire: ConnectionWire) -> None:
        try:
            await self._handle(wire)
        except asyncio.CancelledError:
            wire.reply(_STOPPED)
            raise
        except Exception as fault:
            log.error("an answer failed: %s", place_of(fault))
        finally:
            if wire.task is not None:
                self.tasks.discard(wire.task)
            if not wire.answered:
                self._current = None
                self.transport.close()

    def regulate(self) -> None:
        """Read from the socket, or let the caller wait."""
        if self.transport.is_closing():
            return
        incoming = self._incoming
        refusal_waits = self._refusal is not None and self._current is not None
        if self._waiting or refusal_waits or (incoming is not None and incoming.full):
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def answered(self, wire: ConnectionWire) -> None:
        """A wire's answer is complete."""
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if not wire.keep_alive or self.draining:
            self._hang_up(read=wire.whole and not wire.stalled and self._refusal is None)
        elif wire.whole:
            self._advance()
        else:
            self._rest_timer = self.loop.call_later(HEAD_S, self.transport.abort)
            if self.flow.read_paused:
                self.regulate()

    def _advance(self) -> None:
        self._current = None
        if self._waiting:
            if not self.flow.write_paused:
                self._start(self._waiting.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        if self.flow.read_paused:
            self.regulate()

    def _refuse(self, refusal: Refuse) -> None:
        """Read no further. In a head, the refusal is the last answer; in a body, its request's own answer is."""
        if not self._deaf:
            log.info("refused unread: %s", ", ".join(f"{problem.field} {problem.rule}" for problem in refusal.problems))
        self._deaf = True
        self._in_head = False
        self._refusal = refusal
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.keep_alive = False
            incoming.end(broken=True)
            if incoming.answered:
                self._hang_up(read=False)
        elif self._current is None and not self._waiting and not self.transport.is_closing():
            last = ConnectionWire(self, "", b"", [], http_1_0=False, keep_alive=False, awaits_continue=False)
            last.reply(ungoverned(refusal, None))
        self.regulate()

    def _hang_up(self, *, read: bool) -> None:
        """Close behind the last answer: at once when all that the caller sent was `read`."""
        self._current = None
        self._deaf = True
        self._waiting.clear()
        if read or self.transport.is_closing():
            self.transport.close()
        elif self._linger_timer is None:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._linger_timer = self.loop.call_later(LINGER_S, self.transport.abort)
            self.flow.resume_reading()
