"""A server that stops lets go of connections that begin at that very moment, whatever their callers do."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvicorn
import uvloop

from terraflow.app.peers import Places
from terraflow.app.server import Server
from terraflow.gateway.http.wire import Reply, Wire

ROUNDS = 8
CALLERS = 30
APART_S = 0.001
GRACE_S = 5
ASKED = b"GET /healthz HTTP/1.1\r\nhost: plane\r\n\r\n"


async def answer(wire: Wire) -> None:
    wire.reply(Reply(200, [], b"ok"))


async def call(caller: socket.socket, port: int, after_s: float) -> None:
    """Connect after a while, ask, and keep the connection."""
    await asyncio.sleep(after_s)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        await loop.sock_connect(caller, ("127.0.0.1", port))
        await loop.sock_sendall(caller, ASKED)


async def stop_while_callers_come() -> int:
    """How many connections the server still had when it ended."""
    config = uvicorn.Config(
        answer,  # type: ignore[arg-type]
        http="terraflow.app.protocol:EdgeProtocol",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
    )
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        port = bound.getsockname()[1]
        listening = asyncio.Event()
        server = Server(config, Places(1_000, 1_000, lambda _: False), listening.set, lambda: None)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await listening.wait()
        callers = [stack.enter_context(socket.socket()) for _ in range(CALLERS)]
        for caller in callers:
            caller.setblocking(False)
        # uvicorn looks ten times a second whether it should stop: they come around that moment.
        calls = [asyncio.create_task(call(caller, port, 0.085 + at * APART_S)) for at, caller in enumerate(callers)]
        server.should_exit = True
        await serving
        left = len(server.server_state.connections)
        for task in calls:
            task.cancel()
        await asyncio.wait(calls)
        return left


def test_no_connection_that_begins_while_the_server_stops_is_waited_for() -> None:
    async def rounds() -> list[int]:
        return [await stop_while_callers_come() for _ in range(ROUNDS)]

    assert uvloop.run(rounds()) == [0] * ROUNDS
