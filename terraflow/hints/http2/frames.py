"""HTTP/2 frames: their numbers, how those that the server sends are written, and what a peer did wrong.

A frame is 9 bytes (length u24, type u8, flags u8, stream u31) and a payload (RFC 9113, section 4.1). Types and flags
are plain integers: they are compared once a frame.
"""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384
"""The largest payload accepted: SETTINGS_MAX_FRAME_SIZE stays at its initial value."""
WINDOW_INITIAL = 65_535
WINDOW_MAX = 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITISED = 0x20

HEAD = struct.Struct(">HBBBI")
"""A frame's head; the length is 16 bits and 8 bits."""
_U32 = struct.Struct(">I")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):
    """What the peer did ends its connection with this code."""

    def __init__(self, code: ErrorCode, what: str) -> None:
        super().__init__(code.name, what)
        self.code = code
        self.what = what


class StreamFault(Exception):
    """What the peer did ends one stream with this code."""

    def __init__(self, stream: int, code: ErrorCode, what: str) -> None:
        super().__init__(code.name, what)
        self.stream = stream
        self.code = code
        self.what = what


def protocol_error(what: str, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> ConnectionFault:
    """The fault of a frame that should not be what or where it is."""
    return ConnectionFault(code, what)


def sized(payload: bytes, length: int, name: str) -> None:
    """ConnectionFault, unless the payload has that length."""
    if len(payload) != length:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{name} of a wrong length")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def window_update(stream: int, gain: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(gain))


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def goaway(last_stream: int, code: ErrorCode, what: str = "") -> bytes:
    """A GOAWAY frame; `what` is text for whoever debugs the peer."""
    return frame(GOAWAY, 0, 0, _U32.pack(last_stream) + _U32.pack(code) + what.encode()[:256])


def u32(payload: bytes, at: int = 0) -> int:
    """The unsigned 32 bits there."""
    value: int = _U32.unpack_from(payload, at)[0]
    return value


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding; ConnectionFault when the padding is longer."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
