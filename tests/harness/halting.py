"""A model that says a few pieces of a streamed answer and then nothing, until whoever listens has gone.

What it says is in the ask, `ask halted:<serial>-<pieces>-<told>`: how many pieces, and whether the last of them tells
the usage so far, as engines do that are asked for it with every chunk.
"""

from __future__ import annotations

import asyncio
import re
import time

from tests.harness.counting import PIECE
from tests.harness.upstreams import USAGE, chunk

_ASK = re.compile(rb"ask (halted:\d+-(\d+)-([01]))")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Halting:
    """The server; `closed_at` is when each ask's connection was closed, on the monotonic clock."""

    def __init__(self) -> None:
        self.closed_at: dict[str, float] = {}
        self._closed = asyncio.Condition()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> Halting:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Listen no more."""
        assert self._server is not None
        self._server.close()

    async def closed(self, count: int) -> None:
        """Return once so many connections have been closed."""
        async with self._closed:
            await self._closed.wait_for(lambda: len(self.closed_at) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])  # type: ignore[index]
            found = _ASK.search(await reader.readexactly(length))
            assert found is not None
            pieces, told = int(found[2]), found[3] == b"1"
            writer.write(_HEAD)
            for number in range(pieces):
                last = {"usage": USAGE} if told and number == pieces - 1 else {}
                event = chunk({"content": PIECE}, **last)
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await reader.read(1)
            self.closed_at[found[1].decode()] = time.monotonic()
            async with self._closed:
                self._closed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
