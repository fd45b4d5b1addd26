"""A wire without a connection: a request in memory, and what the service answered it with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from terraflow.gateway.http.wire import BodyTooLarge, Disconnected, Headers, Reply


class MemoryWire:
    """A `gateway.http.wire.Wire` of a request that is whole."""

    def __init__(self, method: str, raw_path: bytes, headers: Headers, body: bytes, client: str = "127.0.0.1") -> None:
        self.method = method
        self.raw_path, _, self.raw_query = raw_path.partition(b"?")
        self.headers = headers
        self.client = client
        self.left = False
        self.ended = False
        self.status = 0
        self.answer_headers: Headers = []
        self.answer = b""
        self._body = body
        self._callback: Callable[[], None] | None = None

    async def read_body(self, bytes_max: int, timeout_s: float) -> bytes:
        await asyncio.sleep(0)
        if self.left:
            raise Disconnected
        if len(self._body) > bytes_max:
            raise BodyTooLarge
        return self._body

    def on_leave(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        if self.left:
            callback()

    def leave(self) -> None:
        """The caller is gone."""
        if not self.left:
            self.left = True
            if self._callback is not None and not self.ended:
                self._callback()

    def reply(self, reply: Reply) -> None:
        assert not self.ended
        if not self.left:
            self.status, self.answer_headers, self.answer = reply.status, reply.headers, reply.body
            self.ended = True

    def start_stream(self, status: int, headers: Headers, time_s: float) -> None:
        assert not self.status
        if not self.left:
            self.status, self.answer_headers = status, headers

    async def send_event(self, event: bytes) -> None:
        assert event and not self.ended
        if not self.left:
            self.answer += event

    def send_if_free(self, event: bytes) -> None:
        if not self.left and not self.ended:
            self.answer += event

    def end_stream(self, last: bytes) -> None:
        assert not self.ended
        if not self.left:
            self.answer += last
            self.ended = True
