"""One kept-alive HTTP connection on bare streams: the cheapest caller that still reads every byte.

A reply counts as read when all of its body has come, by its length or by its last chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple


class Read(NamedTuple):
    """A whole reply; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Line:
    """A connection to one port of this machine, opened when it is first used. Raises OSError or EOFError (an
    IncompleteReadError) when the other side is gone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes, lines: Sequence[str], path: str = "/v1/chat/completions") -> Read:
        """Post a body, with header lines beside the needed ones, and read the whole reply."""
        await self.send(body, lines, path)
        status, headers = await self.head()
        return Read(status, headers, await self._body(headers))

    async def get(self, path: str, lines: Sequence[str]) -> Read:
        """Get a path, and read the whole reply."""
        await self._write("\r\n".join([f"GET {path} HTTP/1.1", "Host: plane", *lines, "", ""]).encode("latin-1"))
        status, headers = await self.head()
        return Read(status, headers, await self._body(headers))

    async def send(self, body: bytes, lines: Sequence[str], path: str = "/v1/chat/completions") -> None:
        """Post a body, and read nothing."""
        needed = ["Host: plane", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        await self._write("\r\n".join([f"POST {path} HTTP/1.1", *needed, *lines, "", ""]).encode("latin-1") + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """A reply's status and headers."""
        assert self._reader is not None
        raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split(" ")[1]), headers

    async def piece(self) -> bytes:
        """The next chunk of a chunked body; empty after the last."""
        assert self._reader is not None
        size = int((await self._reader.readuntil(b"\r\n"))[:-2], 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    def close(self) -> None:
        """Close it at once."""
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.transport.abort()
        self._reader = self._writer = None

    async def _write(self, raw: bytes) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(raw)
        await self._writer.drain()

    async def _body(self, headers: dict[str, str]) -> bytes:
        assert self._reader is not None
        if "content-length" in headers:
            return await self._reader.readexactly(int(headers["content-length"]))
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)
