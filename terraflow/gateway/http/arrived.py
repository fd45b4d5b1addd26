"""What answers a request of a route gets: the request as it arrived, and what of the plane it may reach."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.types import RequestId
from terraflow.gateway.batches.desk import Batches
from terraflow.gateway.exchange import Declared
from terraflow.gateway.feedback import OneAtATime
from terraflow.gateway.http.head import Head, parse_declared
from terraflow.gateway.http.wire import BodyMalformed, BodyTooLarge, BodyTooSlow, Reply, Wire
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.gateway.plane import Plane
from terraflow.ports.store import KeyHolder


class EvidenceReader(Protocol):
    """Inclusion proofs of the tenant's log."""

    async def prove(self, tenant: str, index: int) -> bytes | None:
        """The C2SP tlog-proof of a leaf; None until a checkpoint covers it."""
        ...


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """What may be reached from a route."""

    plane: Plane
    desk: Batches
    evidence: EvidenceReader
    feedback: OneAtATime = msgspec.field(default_factory=OneAtATime)


class Arrived(msgspec.Struct, frozen=True):
    """An authenticated request before its body is read. `argument` is the id behind a route's path, `mouth` the one in
    whose shape it is answered."""

    head: Head
    caller: KeyHolder
    request_id: RequestId
    argument: str
    mouth: Mouth
    wire: Wire


Answering = Callable[[Edge, Arrived], Awaitable[Reply | Refuse | None]]
"""Answers a request, or refuses it before it is governed; None when it has sent its answer itself."""


async def read_declared(edge: Edge, arrived: Arrived, bytes_max: int = sys.maxsize) -> tuple[Declared, bytes] | Refuse:
    """What the head declares, and the body: at most `bytes_max`, and what any body may have. Raises Disconnected."""
    declared = parse_declared(arrived.head)
    if isinstance(declared, Refuse):
        return declared
    raw = await read_body(edge, arrived, min(bytes_max, edge.plane.limits.body_bytes_max))
    return raw if isinstance(raw, Refuse) else (declared, raw)


async def read_body(edge: Edge, arrived: Arrived, bytes_max: int) -> bytes | Refuse:
    """The body, or INVALID_REQUEST. Raises Disconnected."""
    try:
        return await arrived.wire.read_body(bytes_max, edge.plane.limits.body_timeout_s)
    except BodyTooLarge:
        return invalid_request("body", f"must be at most {bytes_max} bytes")
    except BodyTooSlow:
        return invalid_request("body", "must arrive in time")
    except BodyMalformed:
        return invalid_request("body", "must be framed as HTTP/1.1 says")
