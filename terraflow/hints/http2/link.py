"""A connection's line: when it reads and writes, and how it ends.

1. Reading stops while the transport is above its mark (`pause_writing`), and while the connection has yielded its turn.
2. `close` says why and gives up what is under way; `drain` lets it end and begins no other: GOAWAY with the last
   possible stream and a PING, then, when that was answered or a second has passed, GOAWAY with the last one in fact.
3. A line that is to end does so within bounds, whatever the peer does.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from terraflow.hints.http2.frames import PING, WINDOW_MAX, ErrorCode, frame, goaway
from terraflow.hints.http2.outbox import Outbox
from terraflow.hints.http2.shared import Shared

_LINGER_S = 1.0
_DRAINING, _ALIVE = b"draining", b"alive?  "


class Link(asyncio.Protocol, ABC):
    """See the module. `leaving`: the peer goes. `refusing`: no stream above `last_stream` is served any more."""

    outbox: Outbox
    transport: asyncio.Transport

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self.shared = shared
        self.loop = loop
        self.last_stream = 0
        self.leaving = self.refusing = self.closing = self.yielded = False
        self.paused_since = self.asked_at = 0.0
        self._draining = self._lost = self._flushing = False
        self._timers: list[asyncio.TimerHandle] = []

    @abstractmethod
    def give_up(self) -> None:
        """Forget all that is under way."""

    @abstractmethod
    def at_rest(self) -> bool:
        """Whether nothing is under way."""

    @abstractmethod
    def go_on(self) -> None:
        """Read what was held back when the turn was yielded."""

    def pause_writing(self) -> None:
        self.outbox.paused = True
        self.paused_since = time.monotonic()
        self.set_reading()

    def resume_writing(self) -> None:
        self.outbox.paused = False
        self.outbox.flush()
        self.set_reading()
        if self.yielded:
            self.loop.call_soon(self.go_on)

    def set_reading(self) -> None:
        """Rule 1."""
        if not self._lost and not self.transport.is_closing():
            if self.outbox.paused or self.yielded:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def flush_soon(self) -> None:
        """Write once the loop comes round."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what has gathered, and go if it was the last."""
        self._flushing = False
        if not self.closing:
            self.outbox.flush()
            self._close_if_done()

    def ask(self) -> None:
        """Whether the peer is still there: any frame of it is an answer."""
        self.asked_at = time.monotonic()
        self.outbox.control(frame(PING, 0, 0, _ALIVE))

    def pinged(self, payload: bytes) -> None:
        """The answer to a PING of ours."""
        if payload == _DRAINING:
            self._refuse()

    def close(self, code: ErrorCode, what: str) -> None:
        """Rule 2."""
        if self.closing:
            return
        self.closing = True
        if code is not ErrorCode.NO_ERROR:
            self.shared.tally[f"goaway_{code.name}"] += 1
        self.give_up()
        self.outbox.control(goaway(self.last_stream, code, what))
        self.outbox.flush()
        if self.transport.can_write_eof():
            # What is still under way is read and thrown away: a socket closed with unread bytes loses its last words.
            self.transport.write_eof()
            self._timers.append(self.loop.call_later(_LINGER_S, self.transport.close))
        else:
            self.transport.close()
        self._timers.append(self.loop.call_later(2 * _LINGER_S, self.abort))

    def abort(self) -> None:
        """End it without a word."""
        if not self._lost:
            self.transport.abort()

    def drain(self) -> None:
        """Rule 2."""
        if self.closing or self._draining:
            return
        self._draining = True
        self.outbox.control(goaway(WINDOW_MAX, ErrorCode.NO_ERROR, "stopping") + frame(PING, 0, 0, _DRAINING))
        self.outbox.flush()
        self._timers.append(self.loop.call_later(_LINGER_S, self._refuse))

    def _refuse(self) -> None:
        if self._draining and not self.closing and not self.refusing:
            self.refusing = True
            self.outbox.control(goaway(self.last_stream, ErrorCode.NO_ERROR, "stopping"))
            self.flush()

    def _close_if_done(self) -> None:
        if (self.leaving or self.refusing) and self.at_rest():
            self.closing = True
            self.transport.close()
            self._timers.append(self.loop.call_later(self.shared.limits.stalled_s, self.abort))

    def lost(self) -> None:
        """There is no line any more."""
        self.closing = self._lost = True
        for timer in self._timers:
            timer.cancel()
