"""From a whole request to its reply: inline, or in a task that its deadline and its caller's leaving cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from terraflow.hints.http2.connection import Connection
from terraflow.hints.http2.methods import Bidi, ClientStream, Inline, ServerStream, Unary
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.http2.stream import Stream

_MESSAGES_A_TURN = 64
"""Requests that a handler which never waits may read, and replies that it may give, before others have their turn."""
_LARGE_BYTES = 64 << 10
"""A request of this size is a turn by itself."""


def answer_inline(connection: Connection, stream: Stream, method: Inline, message: bytes) -> None:
    """The whole call."""
    try:
        request = method.parse(message)
    except Exception:
        connection.fail(stream, Status.INTERNAL, "the request cannot be parsed")
        return
    try:
        if method.later is not None and (later := method.later(request, stream.call)) is not None:
            start(connection, stream, None, later)
            return
        reply = method.serialize(method.handle(request, stream.call))
    except GrpcError as refused:
        connection.fail(stream, refused.status, refused.message)
    except Exception as broken:
        connection.broken(stream, broken)
    else:
        connection.outbox.answer(stream, reply)


def start(
    connection: Connection, stream: Stream, message: bytes | None, later: Coroutine[Any, Any, Any] | None = None
) -> None:
    """Run the call in a task; `message` is its one request, None when it streams or when `later` makes the reply."""
    task = connection.loop.create_task(_run(connection, stream, message, later))
    stream.task = task
    connection.tasks.add(task)

    def done(_: asyncio.Task[None]) -> None:
        if later is not None:
            later.close()
        connection.task_done(stream)

    task.add_done_callback(done)
    left = stream.call.remaining_s()
    if left is not None and later is None:
        stream.timer = connection.loop.call_later(max(left, 0.0), expire, connection, stream)


def expire(connection: Connection, stream: Stream) -> None:
    """The deadline has passed."""
    if not stream.gone:
        connection.shared.tally["deadlines"] += 1
        connection.fail(stream, Status.DEADLINE_EXCEEDED, "the deadline has passed")
        connection.outbox.flush()


async def _run(
    connection: Connection, stream: Stream, message: bytes | None, later: Coroutine[Any, Any, Any] | None
) -> None:
    try:
        if later is not None:
            await _one_reply(connection, stream, later)
        else:
            await _SHAPES[type(stream.method)](connection, stream, _parsed(stream, message))
    except GrpcError as refused:
        connection.fail(stream, refused.status, refused.message)
    except asyncio.CancelledError:
        connection.fail(stream, Status.UNAVAILABLE, "the server is stopping")
        raise
    except Exception as broken:
        connection.broken(stream, broken)


def _parsed(stream: Stream, message: bytes | None) -> Any:
    if message is None:
        return None
    try:
        return stream.method.parse(message)
    except Exception as refused:
        raise GrpcError(Status.INTERNAL, "the request cannot be parsed") from refused


class Requests:
    """The requests of a stream, parsed; ends with the caller's half-close."""

    __slots__ = ("_connection", "_read", "_stream")

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream
        self._read = 0

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        connection, stream = self._connection, self._stream
        while (message := connection.intake.take(stream)) is None:
            if stream.remote_ended or stream.gone:
                if stream.incoming:
                    raise GrpcError(Status.INTERNAL, "a message is cut short")
                raise StopAsyncIteration
            stream.request_came = connection.loop.create_future()
            try:
                await stream.request_came
            finally:
                stream.request_came = None
        connection.flush_soon()
        self._read += 1
        if self._read % _MESSAGES_A_TURN == 0 or len(message) >= _LARGE_BYTES:
            await asyncio.sleep(0)
        return _parsed(stream, message)


async def _send(connection: Connection, stream: Stream, replies: Any) -> None:
    serialize, sent = stream.method.serialize, 0
    connection.outbox.open(stream)
    connection.flush_soon()
    async with aclosing(replies) as open_replies:
        async for reply in open_replies:
            if stream.gone:
                return
            connection.outbox.message(stream, serialize(reply))
            connection.flush_soon()
            while stream.unsent is not None:
                stream.room = connection.loop.create_future()
                try:
                    await stream.room
                finally:
                    stream.room = None
            sent += 1
            if sent % _MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)
    if not stream.gone:
        connection.outbox.end(stream, Status.OK, "")


async def _one_reply(connection: Connection, stream: Stream, reply: Any) -> None:
    message = stream.method.serialize(await reply)
    if not stream.gone:
        connection.outbox.answer(stream, message)


async def _unary(connection: Connection, stream: Stream, request: Any) -> None:
    await _one_reply(connection, stream, stream.method.handle(request, stream.call))


async def _client_stream(connection: Connection, stream: Stream, _: Any) -> None:
    await _one_reply(connection, stream, stream.method.handle(Requests(connection, stream), stream.call))


async def _server_stream(connection: Connection, stream: Stream, request: Any) -> None:
    await _send(connection, stream, stream.method.handle(request, stream.call))


async def _bidi(connection: Connection, stream: Stream, _: Any) -> None:
    await _send(connection, stream, stream.method.handle(Requests(connection, stream), stream.call))


_SHAPES: dict[type, Callable[[Connection, Stream, Any], Awaitable[None]]] = {
    Unary: _unary,
    ClientStream: _client_stream,
    ServerStream: _server_stream,
    Bidi: _bidi,
}


def whole(connection: Connection, stream: Stream, message: bytes) -> None:
    """The one request of a call has come in full."""
    method = stream.method
    if type(method) is Inline:
        answer_inline(connection, stream, method, message)
    else:
        start(connection, stream, message)
