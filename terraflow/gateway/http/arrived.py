"""A request as its handler gets it, and its body."""

from __future__ import annotations

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.types import RequestId
from terraflow.gateway.http.head import Head
from terraflow.gateway.http.wire import BodyMalformed, BodyTooLarge, BodyTooSlow, Wire
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.ports.store import KeyHolder


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the edge."""

    body_bytes_max: int
    body_values_max: int
    body_timeout_s: float
    deadline_ms_max: int


class Arrived(msgspec.Struct, frozen=True):
    """An authenticated request before its body is read. `argument` is the id behind a route's path."""

    head: Head
    caller: KeyHolder
    request_id: RequestId
    argument: str
    mouth: Mouth
    wire: Wire


async def read_body(wire: Wire, bytes_max: int, timeout_s: float) -> bytes | Refuse:
    """The body, or INVALID_REQUEST. Raises Disconnected."""
    try:
        return await wire.read_body(bytes_max, timeout_s)
    except BodyTooLarge:
        return invalid_request("body", f"must be at most {bytes_max} bytes")
    except BodyTooSlow:
        return invalid_request("body", "must arrive in time")
    except BodyMalformed:
        return invalid_request("body", "must be framed as HTTP/1.1 says")
