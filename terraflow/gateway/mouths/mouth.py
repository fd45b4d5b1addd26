"""What the edge needs of an API shape: one `Mouth` a shape, and nothing of the shape outside of it.

1. A mouth translates: `parse` makes the neutral request of a body, the others make the mouth's bytes of a neutral
   outcome. It decides nothing about a governed request.
2. Every body that a caller of a mouth gets has the mouth's shape, errors from before governance among them.
3. A stream is `event` for each chunk, in order, then `ending`, or `error_event` when it cannot be finished.
4. `name` stands in the record, and in the digest of an idempotency key: it never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.gateway.exchange import Closed, Declared
from terraflow.gateway.mouths.errors import Told
from terraflow.ports.upstream import Answer, Chunk, ModelRequest, Usage


class StreamWriter(Protocol):
    """The server-sent events of one streamed answer."""

    def event(self, chunk: Chunk) -> bytes:
        """The events of a chunk, empty when it holds nothing for the caller."""
        ...

    def ending(self, usage: Usage) -> bytes:
        """What follows the last chunk of a whole answer."""
        ...


class Declaring(ModelRequest, frozen=True, kw_only=True):
    """A request whose body declares what others do in headers."""

    declared: Declared


class Mouth(msgspec.Struct, frozen=True, kw_only=True):
    """One API shape.

    `parse` takes the body and the most values it may hold. `render` and `writer` take the time of the answer in seconds
    since the epoch; `writer` takes the request's id and the capability that answers before it. `collected` makes the
    chunks of a whole answer. `error` makes the body of any error, and `error_event` takes one. `heartbeat` is what a
    silent stream sends; `request_id_header` is the name under which the shape's clients look for the request's id.
    """

    name: str
    request_id_header: bytes
    parse: Callable[[bytes, int], ModelRequest | Refuse]
    render: Callable[[Closed, int], bytes]
    writer: Callable[[str, str, int, ModelRequest], StreamWriter]
    collected: Callable[[Answer], list[Chunk]]
    error: Callable[[Told], bytes]
    error_event: Callable[[bytes], bytes]
    heartbeat: bytes = b": keep-alive\n\n"
