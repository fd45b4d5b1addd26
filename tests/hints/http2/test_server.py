"""The listening socket: whom it takes in, what it does when it cannot, and what a stop leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import grpc
import pytest

from terraflow.hints.http2.methods import Inline
from terraflow.hints.http2.server import Server
from terraflow.hints.http2.shared import ENDING_MAX
from terraflow.hints.http2.tls import TlsFiles
from tests.hints.http2.authority import Authority, written
from tests.hints.http2.raw import ECHO, PREFACE, Strict, settings
from tests.hints.http2.test_clients import dialled, running


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "did not come to hold"
        await asyncio.sleep(0.01)


async def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open() -> None:
    async with running() as made:
        other = Server(ECHO)
        with pytest.raises(OSError, match="in use"):
            await other.start("127.0.0.1", made.port)
        await other.stop()


async def test_a_connection_beyond_its_address_is_closed_and_its_place_comes_back() -> None:
    async with dialled(connections_per_address_max=1) as (made, channel):
        assert await channel.unary_unary("/t/Echo")(b"on", timeout=30) == b"on"
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        assert made.server.shared.tally["refused"] == 1
        await channel.close()
        await until(lambda: not made.server.shared.addresses)
        async with grpc.aio.insecure_channel(made.target) as again:
            assert await again.unary_unary("/t/Echo")(b"on", timeout=30) == b"on"


async def test_a_stop_does_not_wait_for_a_handshake(tmp_path) -> None:
    certificate, key = written(tmp_path, "server", Authority().give("server.test"))
    server = Server(ECHO, tls=TlsFiles(certificate=certificate, key=key))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: server.shared.addresses.total() == 1)
    await asyncio.wait_for(server.stop(20), 5)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await until(lambda: not server.shared.addresses)


async def test_a_stop_cuts_off_whoever_does_not_read() -> None:
    server = Server({"/t/Echo": Inline(lambda request, _: request)})
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(PREFACE + settings())
    await until(lambda: len(server.shared.connections) == 1)
    (connection,) = server.shared.connections
    connection.pause_writing()
    await asyncio.wait_for(server.stop(0.1), 5)
    assert not server.shared.connections
    writer.transport.abort()


async def test_of_those_that_make_room_only_so_many_may_still_be_going() -> None:
    strict = Strict(connections_max=ENDING_MAX + 1, connections_per_address_max=ENDING_MAX + 1)
    peers = [strict.peer() for _ in range(ENDING_MAX + 1)]
    assert [strict.shared.admit("other") for _ in range(ENDING_MAX + 1)] == [True] * ENDING_MAX + [False]
    for peer in peers[:2]:
        peer.connection.connection_lost(None)
    assert strict.shared.admit("other")
