"""A peer that writes its own frames: against a connection in memory, with no socket and no client library.

Frames and header blocks are built here from RFC 9113 and by hpack, not by the code under test.
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

import hpack

from terraflow.hints.http2.call import Peer
from terraflow.hints.http2.inbound import Inbound
from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Inline, Methods
from terraflow.hints.http2.shared import Shared

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KINDS = (
    *("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS"),
    *("PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"),
)
NUMBERS = {name: number for number, name in enumerate(KINDS)}
CODES = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
)
REQUEST = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/t/Echo",
    ":authority": "test",
    "te": "trailers",
    "content-type": "application/grpc",
}


class Frame(NamedTuple):
    kind: str
    flags: int
    stream: int
    payload: bytes


def frame(kind: str | int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    number = NUMBERS[kind] if isinstance(kind, str) else kind
    return len(payload).to_bytes(3, "big") + bytes((number, flags)) + struct.pack(">I", stream) + payload


def block(fields: dict[str, str | None] | list[tuple[str, str]]) -> bytes:
    """A header block that touches no table."""
    pairs = fields.items() if isinstance(fields, dict) else fields
    return hpack.Encoder().encode([(name, value, True) for name, value in pairs if value is not None])


def headers(stream: int = 1, end: bool = False, **changed: str | None) -> bytes:
    """A request's HEADERS; names with `_` for `-`, `p_` before a pseudo-header's; None leaves one out."""
    fields: dict[str, str | None] = dict(REQUEST)
    for name, value in changed.items():
        fields[":" + name[2:] if name.startswith("p_") else name.replace("_", "-")] = value
    ordered = sorted(fields.items(), key=lambda pair: not pair[0].startswith(":"))
    return frame("HEADERS", 0x4 | end, stream, block(dict(ordered)))


def message(body: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(body)) + body


def data(stream: int = 1, body: bytes = b"hello", end: bool = True) -> bytes:
    return frame("DATA", int(end), stream, message(body))


def call(stream: int = 1, body: bytes = b"hello", **changed: str | None) -> bytes:
    return headers(stream, **changed) + data(stream, body)


def settings(**values: int) -> bytes:
    """`s1=4096` is setting 1."""
    return frame("SETTINGS", payload=b"".join(struct.pack(">HI", int(key[1:]), v) for key, v in values.items()))


class Wire(asyncio.Transport):
    """A transport that keeps what is written; `stalled` one that has told the connection to stop writing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.out = bytearray()
        self.reading = True
        self.closed = False
        self.protocol: asyncio.Protocol | None = None

    def get_extra_info(self, name, default=None):
        return default

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def write(self, data):
        assert not self.closed or not data
        self.out += data

    def can_write_eof(self):
        return True

    def write_eof(self):
        pass

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def close(self):
        if not self.closed:
            self.closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close


class Raw:
    """One peer and its connection."""

    def __init__(self, shared: Shared, greeting: bytes = PREFACE + settings()) -> None:
        loop = asyncio.get_running_loop()
        shared.admit("test")
        self.connection = Inbound(shared, loop, Peer("test"))
        self.wire = Wire(loop)
        self.wire.protocol = self.connection
        self.connection.connection_made(self.wire)
        self.decoder = hpack.Decoder()
        self._seen = 0
        if greeting:
            self.send(greeting)
            self.frames()

    def send(self, *parts: bytes) -> None:
        self.connection.data_received(b"".join(parts))

    def frames(self) -> list[Frame]:
        """What has come since the last time."""
        found, out = [], self.wire.out
        while len(out) - self._seen >= 9:
            at = self._seen
            length = int.from_bytes(out[at : at + 3], "big")
            stream = struct.unpack_from(">I", out, at + 5)[0]
            found.append(Frame(KINDS[out[at + 3]], out[at + 4], stream, bytes(out[at + 9 : at + 9 + length])))
            self._seen = at + 9 + length
        assert self._seen == len(out)
        return found

    async def settled(self, times: int = 20) -> list[Frame]:
        for _ in range(times):
            await asyncio.sleep(0)
        return self.frames()

    def told(self, frames: list[Frame]) -> list[str]:
        """The frames in a word each: what a test compares."""
        return [self._word(one) for one in frames]

    def _word(self, one: Frame) -> str:
        if one.kind == "RST_STREAM":
            return f"RST {one.stream} {CODES[int.from_bytes(one.payload, 'big')]}"
        if one.kind == "GOAWAY":
            return f"GOAWAY {CODES[int.from_bytes(one.payload[4:8], 'big')]}"
        if one.kind == "HEADERS":
            fields = dict(self.decoder.decode(one.payload))
            if "grpc-status" in fields:
                http = "" if fields.get(":status", "200") == "200" else f" http {fields[':status']}"
                return f"STATUS {one.stream} {fields['grpc-status']}{http}"
            return f"OPEN {one.stream}"
        if one.kind == "DATA":
            return f"DATA {one.stream} {len(one.payload)}"
        if one.kind in ("SETTINGS", "PING"):
            return f"{one.kind}{' ACK' if one.flags & 1 else ''}"
        return f"{one.kind} {one.stream}"


ECHO: Methods = {"/t/Echo": Inline(lambda request, _: request)}


class Strict:
    """A server's state for tests: any exception that nobody expected is kept in `faults`.

    A turn is long unless a test says otherwise, so that what is sent is answered at once on a busy machine too.
    """

    def __init__(self, methods: Methods = ECHO, **limits: float) -> None:
        self.faults: list[tuple[str, BaseException]] = []
        self.shared = Shared(
            methods, Limits(**{"turn_s": 60.0, **limits}), lambda where, broken: self.faults.append((where, broken))
        )

    def peer(self, greeting: bytes = PREFACE + settings()) -> Raw:
        return Raw(self.shared, greeting)
