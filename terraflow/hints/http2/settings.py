"""SETTINGS: what each may be, as a table, and what the server announces (RFC 9113, section 6.5.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from terraflow.hints.http2.frames import FRAME_BYTES_MAX, WINDOW_MAX, ConnectionFault, ErrorCode
from terraflow.hints.http2.limits import Limits

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)


class Bounds(NamedTuple):
    """The values that a setting may have, and what another is."""

    low: int
    high: int
    fault: ErrorCode


BOUNDS = {
    ENABLE_PUSH: Bounds(0, 1, ErrorCode.PROTOCOL_ERROR),
    INITIAL_WINDOW_SIZE: Bounds(0, WINDOW_MAX, ErrorCode.FLOW_CONTROL_ERROR),
    MAX_FRAME_SIZE: Bounds(FRAME_BYTES_MAX, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),
}
"""Those that are bounded at all; unknown settings are ignored."""


def announced(limits: Limits) -> dict[int, int]:
    """What the server says of itself."""
    return {
        MAX_CONCURRENT_STREAMS: limits.streams_max,
        INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        MAX_FRAME_SIZE: FRAME_BYTES_MAX,
        MAX_HEADER_LIST_SIZE: limits.metadata_bytes_max,
    }


def parsed(payload: bytes) -> Iterator[tuple[int, int]]:
    """The settings of a frame in order; ConnectionFault for a wrong length or value."""
    if len(payload) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a length that no list of settings has")
    for key, value in struct.iter_unpack(">HI", payload):
        bounds = BOUNDS.get(key)
        if bounds is not None and not bounds.low <= value <= bounds.high:
            raise ConnectionFault(bounds.fault, f"setting {key} cannot be {value}")
        yield key, value
