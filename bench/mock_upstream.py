"""A model server that costs next to nothing, for the bench: OpenAI's chat completions with fixed answers.

1. It is one process on 127.0.0.1, `python -m bench.mock_upstream [--port N]`, and prints one JSON line
   (`{"port", "pid"}`) when it listens; it ends with SIGTERM, or when its standard input is closed.
2. What it does is said by the model's name, so that one address serves every case: any name, followed by any of
   `-stream-N` (content chunks of a stream), `-interval-MS` (pause between chunks), `-latency-MS` (pause before the
   answer).
3. Each chunk is written on its own, as a model's tokens come; nothing is joined on this side.
4. `GET /stats` tells what came in: requests, connections, and every stream that its reader left before its end,
   with its request's `user` and the instant on CLOCK_MONOTONIC, which all processes of one machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import re
import signal
import sys
import time
from typing import Any

import httptools
import msgspec
import uvloop

STREAM_CHUNKS_DEFAULT = 100
LEFT_STREAMS_KEPT = 1_000
"""Enough for every trial of a run; older ones fall out."""

_TRAIT = re.compile(r"-(stream|interval|latency)-([0-9]{1,6})")
_TEXT = "Every invoice in the list was paid on time; the oldest of them was settled eleven days before it was due."
_USAGE = {"prompt_tokens": 96, "completion_tokens": 24, "total_tokens": 120}


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Asked(msgspec.Struct):
    model: str = "mock"
    stream: bool = False
    stream_options: _StreamOptions | None = None
    user: str = ""


class _Behaviour(msgspec.Struct, frozen=True):
    chunks: int
    interval_s: float
    latency_s: float


def behaviour(model: str) -> _Behaviour:
    """What a model's name asks for (rule 2)."""
    traits = {name: int(number) for name, number in _TRAIT.findall(model)}
    return _Behaviour(
        chunks=traits.get("stream", STREAM_CHUNKS_DEFAULT),
        interval_s=traits.get("interval", 0) / 1000,
        latency_s=traits.get("latency", 0) / 1000,
    )


def _json_response(status: str, document: Any) -> bytes:
    body = json.dumps(document, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _event(text: str) -> bytes:
    """One server-sent event as one chunk of the chunked transfer coding."""
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chunk(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
    document: dict[str, Any] = {
        "id": "chatcmpl-mock",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "mock",
        "choices": choices,
    }
    if usage:
        document["usage"] = usage
    return _event(json.dumps(document, separators=(",", ":")))


def _delta(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


_ANSWER = _json_response(
    "200 OK",
    {
        "id": "chatcmpl-mock",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "mock",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": _TEXT},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": _USAGE,
    },
)
_NOT_FOUND = _json_response("404 Not Found", {"error": {"message": "no such path", "type": "not_found"}})
_MODELS = _json_response("200 OK", {"object": "list", "data": [{"id": "mock", "object": "model"}]})
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_FIRST = _delta({"role": "assistant", "content": "Every"})
_NEXT = _delta({"content": " token"})
_LAST = _delta({}, "stop")
_USED = _chunk([], _USAGE)
_DONE = _event("[DONE]") + b"0\r\n\r\n"


class Tally:
    """What came in since the start."""

    def __init__(self) -> None:
        self.requests = 0
        self.streams_finished = 0
        self.connections_opened = 0
        self.connections_open = 0
        self.left: collections.deque[dict[str, int | str]] = collections.deque(maxlen=LEFT_STREAMS_KEPT)

    def document(self) -> dict[str, Any]:
        """The answer of `/stats`."""
        return {**vars(self), "left": list(self.left)}


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it are answered one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tally: Tally, known: dict[str, _Behaviour]) -> None:
        self._loop = loop
        self._tally = tally
        self._known = known
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body = b""
        self._streaming: _Asked | None = None
        self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Counts it; uvloop sets TCP_NODELAY itself."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._tally.connections_opened += 1
        self._tally.connections_open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """A stream that still ran has been left by its reader."""
        self._tally.connections_open -= 1
        if self._streaming is not None:
            left: dict[str, int | str] = {"at_ns": time.monotonic_ns(), "chunks_sent": self._sent}
            self._tally.left.append({**left, "user": self._streaming.user})
            self._streaming = None

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; a request that is no HTTP ends the connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._path, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Called by the parser: answer now or after the model's latency."""
        if not self._path.endswith(b"/chat/completions"):
            self._transport.write(self._read(self._path))
            return
        self._tally.requests += 1
        asked = msgspec.json.decode(self._body, type=_Asked)
        does = self._known.get(asked.model)
        if does is None:
            does = self._known[asked.model] = behaviour(asked.model)
        if does.latency_s:
            self._loop.call_later(does.latency_s, self._answer, asked, does)
        else:
            self._answer(asked, does)

    def _read(self, path: bytes) -> bytes:
        if path == b"/stats":
            return _json_response("200 OK", self._tally.document())
        return _MODELS if path.endswith(b"/models") else _NOT_FOUND

    def _answer(self, asked: _Asked, does: _Behaviour) -> None:
        if not asked.stream:
            self._transport.write(_ANSWER)
            return
        self._streaming, self._sent = asked, 0
        self._transport.write(_STREAM_HEAD)
        self._send(asked, does)

    def _send(self, asked: _Asked, does: _Behaviour) -> None:
        if self._streaming is None:
            return
        if self._sent < does.chunks:
            self._transport.write(_NEXT if self._sent else _FIRST)
            self._sent += 1
            if does.interval_s:
                self._loop.call_later(does.interval_s, self._send, asked, does)
            else:
                self._loop.call_soon(self._send, asked, does)
            return
        self._streaming = None
        self._tally.streams_finished += 1
        usage_asked = asked.stream_options is not None and asked.stream_options.include_usage
        self._transport.write(_LAST + _USED + _DONE if usage_asked else _LAST + _DONE)


async def serve(port: int) -> None:
    """Listen until SIGTERM, SIGINT, or the end of standard input (the parent is gone)."""
    loop = asyncio.get_running_loop()
    tally, known, over = Tally(), dict[str, _Behaviour](), asyncio.Event()
    server = await loop.create_server(lambda: Connection(loop, tally, known), "127.0.0.1", port, backlog=1024)
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else over.set())
    print(json.dumps({"port": server.sockets[0].getsockname()[1], "pid": os.getpid()}), flush=True)
    await over.wait()
    server.close()


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--port", type=int, default=0, help="0 picks a free one")
    uvloop.run(serve(arguments.parse_args().port))


if __name__ == "__main__":
    main()
