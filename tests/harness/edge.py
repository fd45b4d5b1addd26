"""The connection alone: `EdgeProtocol` on the loop of production, in a thread, in front of a handler that the test can
hold, and a caller that sends bytes as it likes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import uvicorn
import uvloop
from uvicorn.server import ServerState

from terraflow.app.listener import Listener, Peer
from terraflow.app.peers import Places
from terraflow.app.protocol import EdgeProtocol
from terraflow.core.outcome import invalid_request
from terraflow.gateway.http.replies import ungoverned
from terraflow.gateway.http.wire import BodyMalformed, BodyTooLarge, BodyTooSlow, Disconnected, Reply, Stalled, Wire

BODY_BYTES_MAX = 300_000
BODY_S = 0.5
STREAM_S = 60.0
TIMEOUT_S = 10.0
DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"


LENIENCIES = dict.fromkeys(
    (
        "lenient_headers",
        "lenient_chunked_length",
        "lenient_transfer_encoding",
        "lenient_version",
        "lenient_optional_lf_after_cr",
        "lenient_optional_cr_before_lf",
        "lenient_optional_crlf_after_chunk",
        "lenient_spaces_after_chunk_size",
    ),
    True,
)
"""What llhttp can be told to let pass."""


class Answerer:
    """Says what it received. `/unread` answers without reading; `/held` waits until it is let go; `/stream/N/SIZE`
    sends N events; `/whole/SIZE` replies with so many bytes; `/broken` breaks its stream off; `/fails` raises."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.left: list[str] = []
        self.failed: list[str] = []
        self.sent_bytes = 0
        self.gate = asyncio.Event()

    async def handle(self, wire: Wire) -> None:
        """See `gateway.http.service.Service.handle`."""
        path = wire.raw_path.decode("ascii")
        self.seen.append(path)
        _, name, *numbers = path.split("/")
        if name == "unread":
            wire.reply(Reply(401, [], b"{}"))
        elif name == "held":
            wire.on_leave(lambda: self.left.append(path))
            await self.gate.wait()
            wire.reply(Reply(200, [], b"{}"))
        elif name == "stream":
            wire.on_leave(lambda: self.left.append(path))
            try:
                await self._stream(wire, path, int(numbers[0]), int(numbers[1]))
            except Stalled:
                self.failed.append("Stalled")
                wire.end_stream(b"too late")
        elif name == "whole":
            wire.reply(Reply(200, [], b"x" * int(numbers[0])))
        elif name == "broken":
            wire.start_stream(200, [], STREAM_S)
            await wire.send_event(b"begun")
            wire.reply(Reply(500, [], b"{}"))
        elif name == "fails":
            raise ValueError("a fault of the test")
        else:
            await self._echo(wire, path)

    async def _stream(self, wire: Wire, path: str, events: int, size: int) -> None:
        wire.start_stream(200, [(b"content-type", b"text/event-stream")], STREAM_S)
        for _ in range(events):
            if path in self.left:
                return
            await wire.send_event(b"x" * size)
            self.sent_bytes += size
            await asyncio.sleep(0)
        wire.end_stream(b"end")

    async def _echo(self, wire: Wire, path: str) -> None:
        try:
            body = await wire.read_body(BODY_BYTES_MAX, BODY_S)
        except (BodyTooLarge, BodyTooSlow, BodyMalformed) as error:
            self.failed.append(type(error).__name__)
            wire.reply(ungoverned(invalid_request("body", type(error).__name__), None))
            return
        except Disconnected:
            self.failed.append("Disconnected")
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in wire.headers}
        heard = {"method": wire.method, "path": path, "headers": headers, "body": body.decode("latin-1")}
        wire.reply(Reply(200, [], json.dumps(heard).encode()))


class Edge:
    """A listening socket in a thread, `lenient` with a parser that lets pass what it can. A context manager."""

    def __init__(
        self, *, keep_alive_s: int = 75, connections_max: int = 100, address_max: int = 100, lenient: bool = False
    ) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="edge")
        self.answerer = Answerer()
        self.state = ServerState()
        self.state.default_headers = [(b"date", DATE)]
        self._config = uvicorn.Config(
            self.answerer.handle,
            http=EdgeProtocol,
            ws="none",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=keep_alive_s,
        )
        self._lenient = lenient
        self.places = Places(connections_max, address_max, lambda _: False)
        self.port = 0

    def __enter__(self) -> Edge:
        self._config.load()
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(TIMEOUT_S)
        return self

    async def _listen(self) -> Listener:
        self._bound = socket.create_server(("127.0.0.1", 0))
        self.port = self._bound.getsockname()[1]
        listener = Listener(self._bound, self._opened, self.places)
        listener.start(128)
        return listener

    def _opened(self, peer: Peer, lost: Callable[[], None]) -> EdgeProtocol:
        made = EdgeProtocol(config=self._config, server_state=self.state, app_state={}, peer=peer, lost=lost)
        if self._lenient:
            made.parser.set_dangerous_leniencies(**LENIENCIES)
        return made

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        self._bound.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        for task in list(self.state.tasks):
            task.cancel()
        await asyncio.sleep(0.01)

    def run(self, work: Callable[[], Any]) -> Any:
        """Do something in the thread of the connections."""

        async def there() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(TIMEOUT_S)

    def release(self) -> None:
        """Let the held requests go."""
        self.run(self.answerer.gate.set)

    def connect(self) -> Connection:
        """A new connection."""
        return Connection(socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S))


class Heard:
    """One response. Headers are in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Connection:
    """A caller's end: bytes out, whole responses in. A context manager."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._read = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        """All of it."""
        self.socket.sendall(b"".join(pieces))

    def ask(self, *pieces: bytes, head: bool = False) -> Heard:
        """Send, and read one response."""
        self.send(*pieces)
        return self.hear(head=head)

    def hear(self, *, head: bool = False) -> Heard:
        """The next response; `head` when it answers HEAD, and has no body."""
        start = self._until(b"\r\n\r\n")
        lines = start.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        assert len(headers) == len([line for line in lines[1:] if line]), lines
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1"
        if head or status == "100":
            return Heard(int(status), headers, b"")
        if "content-length" in headers:
            return Heard(int(status), headers, self._exactly(int(headers["content-length"])))
        if headers.get("transfer-encoding") == "chunked":
            return Heard(int(status), headers, b"".join(self._chunks()))
        return Heard(int(status), headers, self.rest())

    def _chunks(self) -> list[bytes]:
        chunks = []
        while True:
            size = int(self._until(b"\r\n"), 16)
            chunk = self._exactly(size + 2)
            assert chunk.endswith(b"\r\n")
            if not size:
                return chunks
            chunks.append(chunk[:-2])

    def rest(self) -> bytes:
        """Everything until the other end closes."""
        while self._more():
            pass
        read, self._read = self._read, b""
        return read

    def silent(self, seconds: float) -> bool:
        """Whether nothing comes, and the connection stays open, for a while."""
        self.socket.settimeout(seconds)
        try:
            return not self._read and not self._more() and False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)

    def closed(self) -> bool:
        """Whether the other end has closed, without another word."""
        return self.rest() == b""

    def _until(self, end: bytes) -> bytes:
        while end not in self._read:
            assert self._more(), f"closed after {self._read!r}"
        found, _, self._read = self._read.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            assert self._more(), f"closed after {self._read!r}"
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _more(self) -> bool:
        try:
            piece = self.socket.recv(65_536)
        except ConnectionResetError:
            return False
        self._read += piece
        return bool(piece)
