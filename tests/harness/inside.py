"""A whole plane inside the test's own process: real store, real pipeline, real service, no sockets.

For tests that must reach into a running plane: a failpoint at a call, a count of what a provider was asked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from terraflow.app.settings import Settings
from terraflow.app.wiring import Parts, Wrap, start
from terraflow.gateway.http.wire import Headers
from terraflow.ports.upstream import Answer, Call, Chunk, Provider
from tests.harness.folder import DataFolder
from tests.harness.wire import MemoryWire


class Counted:
    """A provider that counts what reaches the real one."""

    def __init__(self, real: Provider) -> None:
        self.real = real
        self.calls = 0

    async def complete(self, call: Call) -> Answer:
        self.calls += 1
        return await self.real.complete(call)

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        self.calls += 1
        return self.real.stream(call)

    async def close(self) -> None:
        await self.real.close()


class Heard(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: Any


class Inside:
    """The plane, and what its providers were asked."""

    def __init__(self, parts: Parts, folder: DataFolder, counted: dict[str, Counted], key: str) -> None:
        self.parts = parts
        self.folder = folder
        self._counted = counted
        self._key = key

    @property
    def upstream_calls(self) -> int:
        """Calls that reached a provider so far."""
        return sum(provider.calls for provider in self._counted.values())

    def headers(self, more: dict[str, str]) -> Headers:
        """What every request sends, and more."""
        pairs = {"authorization": f"Bearer {self._key}", "content-type": "application/json", **more}
        return [(name.encode(), value.encode()) for name, value in pairs.items()]

    async def chat(self, body: dict[str, Any], **headers: str) -> Heard:
        """One chat request, from its bytes to its reply's bytes."""
        wire = MemoryWire("POST", b"/v1/chat/completions", self.headers(headers), json.dumps(body).encode())
        await self.parts.service.handle(wire)
        names = {name.decode(): value.decode() for name, value in wire.answer_headers}
        return Heard(wire.status, names, json.loads(wire.answer))


@asynccontextmanager
async def plane_inside(path: Path, document: dict[str, Any], **settings: Any) -> AsyncIterator[Inside]:
    """A started plane over a new folder with this bundle, stopped at the end."""
    folder = DataFolder(path)
    folder.activate(document)
    key = folder.issue_key()
    counted: dict[str, Counted] = {}

    def count(name: str, real: Provider) -> Provider:
        counted[name] = Counted(real)
        return counted[name]

    parts = await start(Settings(data_dir=str(path), **settings), wrap=Wrap(provider=count))
    try:
        yield Inside(parts, folder, counted, key)
    finally:
        await parts.stop()
