"""A model server that counts: which asks reached it, how often, and what it answered cost.

1. An ask is known by the word in its last message but one for a repair, `<kind>:<serial>`; what it is answered with
   depends on its kind alone, and on how often it was asked.
2. What an answer cost is counted when its last byte has been handed to the connection: a model sends a bill for what
   it has said, whether or not anybody was left to hear it.
3. It lives on the event loop of whoever made it, and answers each request after a short random while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from typing import Any

from tests.harness.upstreams import COST, DONE, END, USAGE, USED, completion, text

_ASK = re.compile(rb"ask ([a-z]+:[0-9a-z-]+)")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_BUSY = b"HTTP/1.1 503 Busy\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_FLOWS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = "Certainly, at once. "
PIECES = 5

Json = dict[str, Any]


class Counting:
    """The server; `calls` and `used` are by ask: requests that arrived, and micro-dollars of what was answered."""

    def __init__(self, seed: int = 0, slowest_s: float = 0.012) -> None:
        self.calls: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.port = 0
        self._chance = random.Random(seed)
        self._slowest_s = slowest_s
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._awaited: dict[str, asyncio.Event] = {}

    async def start(self) -> Counting:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Close it and every connection."""
        assert self._server is not None
        self._server.close()
        for task in tuple(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def idle(self) -> None:
        """Return once every connection has been closed by the other side."""
        while self._answering:
            await asyncio.wait(self._answering)

    async def reached(self, ask: str) -> None:
        """Return once a request of this ask has arrived."""
        if ask not in self.calls:
            await self._awaited.setdefault(ask, asyncio.Event()).wait()

    def forget(self, ask: str) -> tuple[int, int]:
        """Calls and cost of an ask that is judged and over."""
        return self.calls.pop(ask, 0), self.used.pop(ask, 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])  # type: ignore[index]
                await self._answer(await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._answering.discard(task)
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def _answer(self, raw: bytes, writer: asyncio.StreamWriter) -> None:
        found = _ASK.search(raw)
        assert found is not None
        ask = found[1].decode()
        kind = ask.partition(":")[0]
        calls = self.calls[ask] = self.calls.get(ask, 0) + 1
        if ask in self._awaited:
            self._awaited.pop(ask).set()
        await asyncio.sleep(self._chance.random() * self._slowest_s)
        if b'"stream":true' in raw.replace(b" ", b""):
            await self._flow(kind, writer)
        elif kind == "flaky" and calls == 1:
            writer.write(_BUSY)
            await writer.drain()
            return
        else:
            said = '{"paid": true}' if kind == "repaired" and calls > 1 else f"{PIECE}No. {calls}"
            whole = json.dumps(completion(said, USAGE)).encode()
            writer.write(_HEAD % len(whole) + whole)
            await writer.drain()
        self.used[ask] = self.used.get(ask, 0) + COST

    async def _flow(self, kind: str, writer: asyncio.StreamWriter) -> None:
        writer.write(_FLOWS)
        for piece in (*[text(PIECE)] * PIECES, END, USED, DONE):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(self._chance.random() * self._slowest_s / PIECES)
            if writer.transport.is_closing():
                raise ConnectionResetError
        writer.write(b"0\r\n\r\n")
        await writer.drain()
