"""The models behind a plane: vendors on raw sockets, in a thread of their own, so that a test can block meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

from tests.providers.vendor import Reply, Request, Vendor, head, says

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
COST = 20
"""Micro-dollars of `USAGE` at the prices of `bundle.PRICES`."""


class Upstreams:
    """A thread with an event loop; every vendor of a test file lives in it. A context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="upstreams")
        self._vendors: list[Vendor] = []

    def __enter__(self) -> Upstreams:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for vendor in self._vendors:
            asyncio.run_coroutine_threadsafe(vendor.stop(), self._loop).result(5)
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, *replies: Reply) -> Vendor:
        """A vendor that listens on a free port."""
        vendor = Vendor(*replies)
        self._vendors.append(asyncio.run_coroutine_threadsafe(vendor.start(), self._loop).result(5))
        return vendor


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*others, return_exceptions=True)


class Gate:
    """What a vendor waits at until the test opens it."""

    def __init__(self) -> None:
        self._opened = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Let everybody through, now and later."""
        self._opened = True
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)

    async def passed(self) -> None:
        """Return once it is open."""
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        if not self._opened:
            await event.wait()


def answer(text: str = "Certainly.", usage: Any = USAGE, finish_reason: str = "stop", **message: Any) -> Reply:
    """A whole chat completion."""
    return says(200, completion(text, usage, finish_reason, **message))


def completion(text: str | None, usage: Any = USAGE, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion's body."""
    said = {"role": "assistant", "content": text} | message
    choice = {"index": 0, "message": said, "finish_reason": finish_reason, "logprobs": None}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **fields: Any) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice]} | fields
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text(said: str) -> bytes:
    """An event with a piece of text."""
    return chunk({"content": said})


END = chunk({}, "stop")
USED = chunk({}, choices=[], usage=USAGE)
DONE = b"data: [DONE]\n\n"


def flow(*pieces: bytes | Gate | float, end: bool = True) -> Reply:
    """A chunked event stream: bytes are sent as one chunk each, a gate is waited at, a number is a pause in seconds;
    without `end` the connection is dropped after the last."""

    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            elif isinstance(piece, Gate):
                await piece.passed()
            else:
                await asyncio.sleep(piece)
        if end:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            writer.transport.abort()

    return reply


def held(gate: Gate, reply: Reply) -> Reply:
    """A reply that comes only when the gate is open."""

    async def wait(writer: asyncio.StreamWriter, request: Request) -> None:
        await gate.passed()
        await reply(writer, request)

    return wait
