"""The process that serves: uvicorn around the service, started once the plane is ready and drained at the end.

1. A plane listens only when everything behind it works; what cannot start says why and exits.
2. SIGTERM or SIGINT: readiness turns false, no new request is taken, running ones finish within `drain_s`, what does
   not is recorded as a fault, checkpoints are signed, and the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
import uvloop

from terraflow.app.gauges import read_connections
from terraflow.app.listener import Listener, Peer
from terraflow.app.opening import check_tls
from terraflow.app.peers import Places, many_come_through
from terraflow.app.protocol import EdgeProtocol
from terraflow.app.settings import Settings
from terraflow.app.telemetry import set_up_logging
from terraflow.app.wiring import Parts, Wrap, start
from terraflow.gateway.faults import place_of

log = logging.getLogger("terraflow.server")

BACKLOG = 1024
DESCRIPTORS = 256
"""What the process opens beside connections to callers and providers: the database's files, and those of a start."""
CONNECTIONS_LEAST = 16
GC_EVERY = 20_000
DRAIN_SHARE = 0.8
"""The part of `drain_s` in which requests may finish; what has not is ended then, and answered and recorded in the
rest."""
ASK_EVERY_S = 0.1
"""How often connections are asked to close, while the server stops: as often as uvicorn looks whether they have."""
TASK_END_S = 1.0
"""How long a cancelled request may take to let go."""
_ADVICE = {
    errno.EADDRINUSE: "give another --port, or 0",
    errno.EACCES: "give a --port from 1024 on, or 0",
    errno.EADDRNOTAVAIL: "bind_host must be an address of this machine",
}


class CannotListen(Exception):
    """The address is not to be had; the message says which and why."""


class Server(uvicorn.Server):
    """uvicorn, with a listener of our own, a word when it listens and a word when it stops to."""

    def __init__(
        self, config: uvicorn.Config, places: Places, listening: Callable[[], None], draining: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._places = places
        self._listening = listening
        self._draining = draining

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn's, but the signal is not raised again afterwards: it would end the process before the store and
        the checkpoints behind the server are brought to their end."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen by our own means: uvicorn's take every connection, and any time for its TLS handshake."""
        assert sockets is not None
        listeners = [Listener(bound, self._opened, self._places, self.config.ssl) for bound in sockets]
        for listener in listeners:
            listener.start(self.config.backlog)
        self.servers = cast("list[asyncio.Server]", listeners)
        self.started = True
        self._listening()

    def _opened(self, peer: Peer, lost: Callable[[], None]) -> EdgeProtocol:
        return EdgeProtocol(config=self.config, server_state=self.server_state, app_state={}, peer=peer, lost=lost)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._draining()
        asking = asyncio.create_task(self._ask_again())
        try:
            await super().shutdown(sockets)
        finally:
            asking.cancel()

    async def _ask_again(self) -> None:
        """uvicorn asks the connections that there are to close, once: one that was accepted and is only then made
        would be waited for as long as its caller keeps it."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            for connection in list(self.server_state.connections):
                connection.shutdown()


def serve(settings: Settings, listening: Callable[[str], None], *, wrap: Wrap | None = None) -> None:
    """Serve until a signal says to stop. `listening` is called once, with the base URL, when requests are taken.

    Raises CannotListen, CannotStart, and what `wiring.start` raises.
    """
    set_up_logging(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, listening, wrap))


async def _serve(settings: Settings, listening: Callable[[str], None], wrap: Wrap | None) -> None:
    check_tls(settings)
    with contextlib.closing(_bind(settings)) as bound:
        parts = await start(settings, access_log=sys.stderr if settings.access_log else None, wrap=wrap)
        await _serve_on(bound, parts, settings, listening)


async def _serve_on(bound: socket.socket, parts: Parts, settings: Settings, listening: Callable[[str], None]) -> None:
    scheme = "https" if settings.tls_cert_file else "http"
    host, port = bound.getsockname()[:2]
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    # What the start made stays for good: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # A request makes about a thousand objects that die with it, nearly all without a cycle: looking for cycles at
    # every 700, as the default has it, costs a twentieth of the CPU and finds nothing.
    gc.set_threshold(GC_EVERY, 20, 50)

    def draining() -> None:
        parts.service.draining = True
        parts.batches.stop_taking()
        asyncio.get_running_loop().call_later(settings.drain_s * DRAIN_SHARE, parts.plane.running.stop)

    places = Places(
        _connections(settings), settings.connections_per_address_max, many_come_through(settings.trusted_proxies)
    )
    parts.metrics.watch(lambda: read_connections(places))
    server = Server(_config(settings, parts), places, lambda: listening(url), draining)
    try:
        await server.serve(sockets=[bound])
        await parts.batches.drained(settings.drain_s)
        await _end_requests(server, parts)
    finally:
        await parts.stop()


async def _end_requests(server: Server, parts: Parts) -> None:
    """Bring what has not finished in time to its recorded end: first its task ends, then every verb that it had called
    already. What cannot be recorded now is found by the next start."""
    tasks = set(server.server_state.tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=TASK_END_S)
    try:
        await parts.store.drain()
        await parts.plane.recovery.close_all()
    except Exception as error:
        log.error("requests are left for the next start to close: %s", place_of(error))


def _connections(settings: Settings) -> int:
    """How many of the callers' connections this process may have descriptors for, having asked for as many as it may:
    `connections_max`, or what is left of the system's limit. Raises CannotListen."""
    elsewhere = settings.upstream_connections_max + DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections_max + elsewhere
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            left = soft - elsewhere
            if left < CONNECTIONS_LEAST:
                raise CannotListen(f"{wanted} file descriptors are needed, and {soft} allowed: raise ulimit -n")
            log.warning("connections_max is %d here, for want of file descriptors: raise ulimit -n to %d", left, wanted)
            return left
    return settings.connections_max


def _config(settings: Settings, parts: Parts) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if settings.tls_cert_file is not None:
        tls = {"ssl_certfile": settings.tls_cert_file, "ssl_keyfile": settings.tls_key_file}
    return uvicorn.Config(
        parts.service.handle,
        http=EdgeProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
        **tls,
    )


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.bind_host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.bind_host, settings.bind_port))
    except OSError as error:
        bound.close()
        advice = _ADVICE.get(error.errno or 0, "see bind_host")
        raise CannotListen(
            f"cannot listen on {settings.bind_host}:{settings.bind_port}: {error.strerror}; {advice}"
        ) from None
    bound.setblocking(False)
    return bound
