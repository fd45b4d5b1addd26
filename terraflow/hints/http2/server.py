"""The server: one listening socket, an `Inbound` for each client that is admitted, a stop that lets calls end.

1. It accepts by itself, so that clients count from their first packet on, a TLS handshake included, and so that each
   meets the certificate that is in force then.
2. `stop` accepts no more, tells clients to go, waits for their calls, and cancels what is left after `grace_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from terraflow.hints.http2.call import Peer
from terraflow.hints.http2.inbound import Inbound
from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Methods
from terraflow.hints.http2.shared import OnFault, Shared, unheard
from terraflow.hints.http2.tls import ReloadedTls, TlsFiles

_BACKLOG = 1_024
_ACCEPTS_A_TURN = 64
_RELOAD_S = 5.0
_PAUSE_S = 0.5
_SHORT_OF = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Server:
    """`on_fault` is told of what nobody expected (a handler's exception by its path, "tls" for files that are no good),
    and `on_renewed` of TLS files that have changed and are in force for whoever connects from now on.

    `shared.tally` counts what happened since the start.
    """

    def __init__(
        self,
        methods: Methods,
        *,
        limits: Limits | None = None,
        tls: TlsFiles | None = None,
        on_fault: OnFault = unheard,
        on_renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self.shared = Shared(methods, limits or Limits(), on_fault)
        self._tls = None if tls is None else ReloadedTls(tls)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloading: asyncio.TimerHandle | None = None
        self._refused = ""
        self._on_renewed = on_renewed
        self._greeting: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chooses when 0 is asked for. OSError when that cannot be."""
        loop = self._loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        loop.add_reader(listening, self._accept)
        if self._tls is not None:
            self._reloading = loop.call_later(_RELOAD_S, self._reload)
        bound: int = listening.getsockname()[1]
        return bound

    def _accept(self) -> None:
        listening, loop = self._socket, self._loop
        if listening is None or loop is None:
            return
        for _ in range(_ACCEPTS_A_TURN):
            try:
                accepted, address = listening.accept()
            except OSError as refused:
                if refused.errno in _SHORT_OF:
                    loop.remove_reader(listening)
                    loop.call_later(_PAUSE_S, self._accept_again)
                return
            host = str(address[0])
            if not self.shared.admit(host):
                accepted.close()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._greet(accepted, host))
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    def _accept_again(self) -> None:
        if self._socket is not None and self._loop is not None:
            self._loop.add_reader(self._socket, self._accept)

    async def _greet(self, accepted: socket.socket, host: str) -> None:
        """Hand an admitted client to its connection, after the handshake if there is one."""
        loop = asyncio.get_running_loop()
        tls = None if self._tls is None else self._tls.context
        connection = Inbound(self.shared, loop, Peer(host))
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self.shared.limits.handshake_s,
            )
        except (OSError, asyncio.CancelledError):
            if not connection.made:
                accepted.close()
                self.shared.tally["handshakes_failed"] += 1
                self.shared.leave(connection)

    def _reload(self) -> None:
        if self._tls is None or self._loop is None:
            return
        self._reloading = self._loop.call_later(_RELOAD_S, self._reload)
        try:
            if self._tls.refresh() or self._refused:
                self._on_renewed()
            self._refused = ""
        except OSError as refused:
            if str(refused) != self._refused:
                self._refused = str(refused)
                self.shared.on_fault("tls", refused)

    async def stop(self, grace_s: float = 10.0) -> None:
        """See rule 2. Idempotent."""
        listening, self._socket = self._socket, None
        if listening is None or self._loop is None:
            return
        self._loop.remove_reader(listening)
        listening.close()
        if self._reloading is not None:
            self._reloading.cancel()
        for greeting in self._greeting:
            greeting.cancel()
        for connection in list(self.shared.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.shared.emptied(), grace_s)
        tasks = [task for connection in self.shared.connections for task in connection.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self.shared.connections):
            connection.abort()
        await self.shared.emptied()
