"""The few ASGI words the edge uses: reading a bounded body, sending a reply, noticing that the caller left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Reply(msgspec.Struct, frozen=True):
    """A whole response: status, headers beside Content-Type and Content-Length, a JSON body."""

    status: int
    headers: Headers
    body: bytes
    content_type: bytes = b"application/json"


class BodyTooLarge(Exception):
    """More bytes than the bound; what was read is dropped."""


class BodyTooSlow(Exception):
    """The body did not arrive in the time given."""


class Disconnected(Exception):
    """The caller left before the body was whole."""


async def read_body(receive: Receive, bytes_max: int, timeout_s: float) -> bytes:
    """The request's body, at most `bytes_max` bytes, within `timeout_s`."""
    message = await _next(receive, timeout_s)
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > bytes_max:
            raise BodyTooLarge
        return body
    parts, size = [body], len(body)
    ends = asyncio.get_running_loop().time() + timeout_s
    while message.get("more_body", False):
        if size > bytes_max:
            raise BodyTooLarge
        message = await _next(receive, ends - asyncio.get_running_loop().time())
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
    if size > bytes_max:
        raise BodyTooLarge
    return b"".join(parts)


async def _next(receive: Receive, timeout_s: float) -> Message:
    try:
        async with asyncio.timeout(timeout_s):
            message = await receive()
    except TimeoutError:
        raise BodyTooSlow from None
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message


async def send_reply(send: Send, reply: Reply) -> None:
    """Send a whole response."""
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [
                (b"content-type", reply.content_type),
                (b"content-length", str(len(reply.body)).encode()),
                *reply.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": reply.body})
