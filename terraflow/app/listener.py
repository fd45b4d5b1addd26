"""The listening socket: each connection is counted before a byte of it is read, TLS handshakes among them.

1. A connection for which there is no place (`peers`) is closed at once, unread: an answer would cost what the bound
   is there to keep.
2. A TLS handshake has `HANDSHAKE_S`.
3. When the process has no descriptor left, accepting rests for `REST_S`.
4. Who is at the other end is known from the accept on, and is what the bounds and `trusted_proxies` are asked about.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from terraflow.app.peers import Place, Places, plain_address

log = logging.getLogger("terraflow.http")

HANDSHAKE_S = 10.0
"""As long as a head may take: two round trips over any line."""
REST_S = 1.0
TURN_MAX = 64
"""Connections that are accepted before anything else runs."""
TELL_EVERY_S = 10.0
"""How often the log says that connections were refused."""
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

Peer = tuple[str, int]
Opened = Callable[[Peer, Callable[[], None]], asyncio.Protocol]
"""Makes a connection's protocol, of who is at its other end and what to call once it is lost."""


class Listener:
    """Accepts connections from a bound socket until it is closed. It has what uvicorn asks of a server."""

    def __init__(self, bound: socket.socket, opened: Opened, places: Places, tls: ssl.SSLContext | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._opened = opened
        self._places = places
        self._tls = tls
        self._beginning: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._refused = 0
        self._told = float("-inf")

    def start(self, backlog: int) -> None:
        """Begin to accept; `backlog` connections may wait for it."""
        self._bound.setblocking(False)
        self._bound.listen(backlog)
        self._loop.add_reader(self._bound, self._accept)

    def close(self) -> None:
        """Accept no more. What is being begun goes on: uvloop loses a connection whose beginning is cancelled, and
        whoever stops the server asks each one that begins to close."""
        self._loop.remove_reader(self._bound)
        if self._rest is not None:
            self._rest.cancel()

    async def wait_closed(self) -> None:
        """Nothing of it runs on after `close`."""

    def _accept(self) -> None:
        for _ in range(TURN_MAX):
            try:
                accepted, peer = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.warning("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(self._bound)
                self._rest = self._loop.call_later(REST_S, self._loop.add_reader, self._bound, self._accept)
                return
            address = plain_address(peer[0])
            place = self._places.take(address)
            if place is None:
                accepted.close()
                self._tell()
                continue
            task = self._loop.create_task(self._begin(accepted, (address, peer[1]), place))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket, peer: Peer, place: Place) -> None:
        begun = False
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = self._opened(peer, place.give_back)
            timeout_s = None if self._tls is None else HANDSHAKE_S
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
            begun = True
        except OSError as error:
            # Of TLS, of the network, and of the time: ssl.SSLError and TimeoutError are OSErrors.
            log.debug("a connection did not begin: %s", type(error).__name__)
        finally:
            if not begun:
                place.give_back()
                accepted.close()

    def _tell(self) -> None:
        self._refused += 1
        now = self._loop.time()
        if now - self._told >= TELL_EVERY_S:
            log.warning("connections refused, for want of a place: %d (%d are open)", self._refused, self._places.open)
            self._refused, self._told = 0, now
