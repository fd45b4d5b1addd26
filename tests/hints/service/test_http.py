"""A listener against strangers: who is let in, what is bounded, and what a fault looks like from outside."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from terraflow.hints.service import http
from terraflow.hints.service.http import Listener, Refused, Routes, read_body

TOKEN = b"s3cret-token"


async def hello(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


async def size(request: web.BaseRequest) -> web.Response:
    return web.Response(text=str(len(await read_body(request, 1000))))


async def broken(_request: web.BaseRequest) -> web.Response:
    raise KeyError("secret of ours")


async def refused(_request: web.BaseRequest) -> web.Response:
    raise Refused(409, "not now", field="x")


ROUTES: Routes = {
    "/hello": {"GET": hello},
    "/size": {"POST": size, "PUT": size},
    "/broken": {"GET": broken},
    "/no": {"GET": refused},
}


@asynccontextmanager
async def listening(token: bytes | None = None) -> AsyncIterator[int]:
    listener = Listener(ROUTES, host="127.0.0.1", port=0, token=token)
    port = await listener.start()
    try:
        yield port
    finally:
        await listener.stop()


@asynccontextmanager
async def asking(port: int) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session


async def raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_paths_and_methods() -> None:
    async with listening() as port, asking(port) as session:
        async with session.get("/hello") as response:
            assert (response.status, await response.text()) == (200, "hello")
            assert response.headers["Connection"] == "close"
        async with session.head("/hello") as response:
            assert (response.status, await response.read()) == (200, b"")
        async with session.post("/hello") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET")
        async with session.head("/size") as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST, PUT")
        async with session.get("/none") as response:
            assert response.status == 404
        async with session.get("/no") as response:
            assert (response.status, await response.json()) == (409, {"error": "not now", "field": "x"})


async def test_a_fault_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as port, asking(port) as session, session.get("/broken") as response:
        assert (response.status, await response.json()) == (500, {"error": "internal error"})
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer x", "Basic s3cret-token", "s3cret-token", "Bearer \x80"]
)
@pytest.mark.parametrize("path", ["/hello", "/none"])
async def test_nothing_is_answered_without_the_token(header: str | None, path: str) -> None:
    async with listening(TOKEN) as port:
        line = "" if header is None else f"Authorization: {header}\r\n"
        answer = await raw(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode("latin-1"))
    assert answer.startswith((b"HTTP/1.1 401", b"HTTP/1.0 401"))
    assert b"WWW-Authenticate: Bearer" in answer


@pytest.mark.parametrize("header", ["Bearer s3cret-token", "bearer  s3cret-token "])
async def test_the_token_opens(header: str) -> None:
    headers = {"Authorization": header}
    async with listening(TOKEN) as port, asking(port) as session, session.get("/hello", headers=headers) as response:
        assert response.status == 200


async def test_a_body_is_bounded() -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    async with listening() as port, asking(port) as session:
        for body, status in ((b"x" * 1000, 200), (b"x" * 1001, 413), (chunks(10), 200), (chunks(11), 413)):
            async with session.put("/size", data=body) as response:
                assert response.status == status


async def test_a_slow_body_and_a_slow_head_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_S", 0.2)
    monkeypatch.setattr(http, "HEAD_S", 0.2)
    async with listening() as port:
        answer = await raw(port, b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 408")
        assert await raw(port, b"") == b""
        assert await raw(port, b"GET /hello HTTP/1.1\r\nHost: x\r\nX-") == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /hello HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /hello HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_turned_away(sent: bytes) -> None:
    async with listening() as port:
        assert b" 400 " in (await raw(port, sent)).partition(b"\r\n")[0]
        async with asking(port) as session, session.get("/hello") as response:
            assert response.status == 200


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 4)
    async with listening() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        await asyncio.sleep(0.05)
        assert await raw(port, b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.05)
        assert (await raw(port, b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"hello")


async def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await Listener(ROUTES, host="127.0.0.1", port=taken.getsockname()[1]).start()


async def test_stopping_twice() -> None:
    listener = Listener(ROUTES, host="127.0.0.1", port=0)
    await listener.start()
    await listener.stop()
    await listener.stop()
