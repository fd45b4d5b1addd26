"""What a service gives the server: a table from `/package.Service/Method` to one of these.

1. `parse` makes a request of a message's bytes and `serialize` bytes of a reply; what `parse` raises is INTERNAL.
2. A `GrpcError` that is raised is the call's status; any other exception is INTERNAL without its text, and is told to
   the server's `on_fault`.
3. `Inline` runs on the event loop, in the middle of a read: it never waits and takes microseconds. It is called even
   when the deadline has passed, and decides itself what to answer then. All the others are cancelled at their
   deadline, and when the caller leaves. A request of which `later` makes a coroutine runs in a task that only the
   caller's leaving cancels: its deadline stays its own business.
4. Requests of a stream arrive as they are asked for, replies leave as the caller reads them: iterating waits, in both
   directions. A handler that is done before the requests are leaves the rest unread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from terraflow.hints.http2.call import Call

Parse = Callable[[bytes], Any]
Serialize = Callable[[Any], bytes]


def unchanged(message: bytes) -> bytes:
    """For a service that reads and writes its messages itself."""
    return message


@dataclass(frozen=True, slots=True)
class Inline:
    """One request, one reply, at once."""

    handle: Callable[[Any, Call], Any]
    parse: Parse = unchanged
    serialize: Serialize = unchanged
    later: Callable[[Any, Call], Coroutine[Any, Any, Any] | None] | None = None
    """Asked first, where there is one; None: `handle` it."""


@dataclass(frozen=True, slots=True)
class Unary:
    """One request, one reply."""

    handle: Callable[[Any, Call], Awaitable[Any]]
    parse: Parse = unchanged
    serialize: Serialize = unchanged


@dataclass(frozen=True, slots=True)
class ClientStream:
    """Many requests, one reply."""

    handle: Callable[[AsyncIterator[Any], Call], Awaitable[Any]]
    parse: Parse = unchanged
    serialize: Serialize = unchanged


@dataclass(frozen=True, slots=True)
class ServerStream:
    """One request, many replies: `handle` is an async generator, which is closed when the caller leaves."""

    handle: Callable[[Any, Call], AsyncIterator[Any]]
    parse: Parse = unchanged
    serialize: Serialize = unchanged


@dataclass(frozen=True, slots=True)
class Bidi:
    """Many requests, many replies."""

    handle: Callable[[AsyncIterator[Any], Call], AsyncIterator[Any]]
    parse: Parse = unchanged
    serialize: Serialize = unchanged


Method = Inline | Unary | ClientStream | ServerStream | Bidi
Methods = Mapping[str, Method]
