"""A vendor's server on a raw socket, so that a test decides about every byte, and sees every request and every
close.

Each request is answered by the next of `replies` (the last again and again): a coroutine function that gets the
writer and the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Request:
    """One request as it arrived."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]
        self.raw = body

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Reply = Callable[[asyncio.StreamWriter, Request], Awaitable[None]]


class Vendor:
    """The server. `closed_at` lists when each connection was closed by its client, on the monotonic clock."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []
        self.connections = 0
        self.closed_at: list[float] = []
        self.port = 0
        self.replying = False
        self.asked = asyncio.Event()
        self._left = asyncio.Event()
        self._settled = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> Vendor:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aenter__(self) -> Vendor:
        return self if self._server is not None else await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def closing(self, within_s: float = 2.0) -> float:
        """When the first connection was closed; fails if none is within the time."""
        async with asyncio.timeout(within_s):
            await self._left.wait()
        return self.closed_at[0]

    async def settled(self, within_s: float = 2.0) -> None:
        """Wait until a reply was sent to its end, or its client closed the connection; fails if neither is in
        time."""
        async with asyncio.timeout(within_s):
            await self._settled.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        begun = b""
        try:
            while True:
                head = begun + await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                request = Request(head[:-4], await reader.readexactly(length))
                self.requests.append(request)
                self.asked.set()
                reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
                begun = await self._answer(reader, writer, reply, request)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            self.closed_at.append(time.monotonic())
            self._left.set()
            self._settled.set()
            self._writers.discard(writer)
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply, request: Request
    ) -> bytes:
        """Reply, and notice meanwhile that the client has gone; what it already sent of its next request."""
        self.replying = True
        replying = asyncio.ensure_future(reply(writer, request))
        heard = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({replying, heard}, return_when=asyncio.FIRST_COMPLETED)
            if heard.done() and not heard.result():
                raise ConnectionResetError
            await replying
            self.replying = False
            self._settled.set()
            return heard.result() if heard.done() else b""
        finally:
            for task in (replying, heard):
                task.cancel()
            await asyncio.gather(replying, heard, return_exceptions=True)


def head(status: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *headers, "", ""]).encode()


def says(status: int, body: Any, *headers: str) -> Reply:
    """A whole response; `body` is bytes, or what becomes JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(status, "Content-Type: application/json", f"Content-Length: {len(raw)}", *headers) + raw)
        await writer.drain()

    return reply


def streams(*pieces: bytes | float, end: bool = True) -> Reply:
    """A chunked event stream: bytes are sent as one chunk each, numbers are pauses in seconds; without `end` the
    connection is dropped after the last."""

    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            else:
                await asyncio.sleep(piece)
        if end:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            writer.transport.abort()

    return reply


def forever(piece: bytes) -> Reply:
    """A chunked event stream that repeats one piece without an end: 128 MiB of it, then it only stays open."""

    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
        for _ in range(128 * 1024 * 1024 // len(piece)):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        await asyncio.sleep(60)

    return reply


async def silence(_: asyncio.StreamWriter, __: Request) -> None:
    """Nothing, for as long as the client waits."""
    await asyncio.sleep(60)


async def hangs_up(writer: asyncio.StreamWriter, _: Request) -> None:
    """The connection is dropped without a byte."""
    writer.transport.abort()
