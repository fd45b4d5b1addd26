"""What each frame of a peer does, as a table by its type.

1. A frame that breaks the protocol is a ConnectionFault; one that breaks only its stream is a StreamFault.
2. A frame that makes work without being a call takes a token of its kind (`limits.BUCKETS`).
3. A frame on a stream that the server itself ended early is what was under way, and is ignored; on any other ended
   stream it is a fault.
4. One leniency: RST_STREAM on a stream that was never opened is ignored, though RFC 9113 (section 5.1) ends the
   connection for it. Older versions of grpcio send it when a call is cancelled before its HEADERS have gone, and the
   connection's other calls are not at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from terraflow.hints.http2 import running
from terraflow.hints.http2 import settings as set_
from terraflow.hints.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    StreamFault,
    frame,
    u32,
    unpadded,
)
from terraflow.hints.http2.heads import Head, Malformed
from terraflow.hints.http2.messages import PREFIX_BYTES
from terraflow.hints.http2.status import GrpcError, Status

if TYPE_CHECKING:
    from terraflow.hints.http2.connection import Connection
    from terraflow.hints.http2.stream import Stream


class OpenBlock:
    """A header block whose CONTINUATION is to come."""

    __slots__ = ("block", "flags", "since", "stream")

    def __init__(self, stream: int, flags: int, block: bytes, since: float) -> None:
        self.stream = stream
        self.flags = flags
        self.block = bytearray(block)
        self.since = since


def _fault(what: str, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> ConnectionFault:
    return ConnectionFault(code, what)


def _sized(payload: bytes, length: int, name: str) -> None:
    if len(payload) != length:
        raise _fault(f"{name} of a wrong length", ErrorCode.FRAME_SIZE_ERROR)


def _on_headers(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    if not number & 1:
        raise _fault("HEADERS on a stream that no client opens")
    if flags & (PADDED | PRIORITISED):
        payload = unpadded(payload, flags)
        if flags & PRIORITISED:
            if len(payload) < 5:
                raise _fault("HEADERS too short for its priority", ErrorCode.FRAME_SIZE_ERROR)
            payload = payload[5:]
    if flags & END_HEADERS:
        _on_block(connection, flags, number, payload)
    else:
        connection.open_block = OpenBlock(number, flags, payload, connection.now)


def _on_continuation(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    open_block = connection.open_block
    if open_block is None or open_block.stream != number:
        raise _fault("CONTINUATION of nothing")
    if not payload:
        connection.spend("empties")
    open_block.block += payload
    if len(open_block.block) > connection.shared.limits.header_block_bytes_max:
        raise _fault("the header block is too large", ErrorCode.ENHANCE_YOUR_CALM)
    if flags & END_HEADERS:
        connection.open_block = None
        _on_block(connection, open_block.flags, number, bytes(open_block.block))


def _on_block(connection: Connection, flags: int, number: int, block: bytes) -> None:
    if number > connection.last_stream:
        connection.last_stream = number
        try:
            head = connection.reader.head(block)
        except Malformed as refused:
            raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, str(refused)) from refused
        if connection.refusing:
            connection.abandon(number)
        else:
            _begin(connection, flags, number, head)
        return
    stream = connection.streams.get(number)
    if stream is None and number not in connection.abandoned:
        raise _fault("HEADERS on a stream that has ended", ErrorCode.STREAM_CLOSED)
    try:
        connection.reader.trailers(block)
    except Malformed as refused:
        raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, str(refused)) from refused
    if stream is None:
        connection.spend("empties")
    elif stream.remote_ended:
        raise StreamFault(number, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the stream")
    elif not flags & END_STREAM:
        raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "trailers that do not end the stream")
    else:
        _ended(connection, stream)


def _begin(connection: Connection, flags: int, number: int, head: Head) -> None:
    """A new call."""
    if len(connection.streams) + connection.orphans >= connection.shared.limits.streams_max:
        raise StreamFault(number, ErrorCode.REFUSED_STREAM, "too many calls at a time")
    refusal = head.refusal
    method = connection.shared.methods.get(head.path)
    if refusal is not None or method is None:
        connection.refuse(number, head, bool(flags & END_STREAM))
        return
    stream = connection.begin(number, head, method)
    if flags & END_STREAM:
        _ended(connection, stream)
    elif not stream.one_request:
        running.start(connection, stream, None)


def _on_data(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    connection.intake.received(len(payload))
    stream = connection.streams.get(number)
    if stream is None:
        if number > connection.last_stream or not number & 1:
            raise _fault("DATA on a stream that was never opened")
        if number not in connection.abandoned:
            raise StreamFault(number, ErrorCode.STREAM_CLOSED, "DATA on a stream that has ended")
        if not payload:
            connection.spend("empties")
        return
    if stream.remote_ended:
        raise StreamFault(number, ErrorCode.STREAM_CLOSED, "DATA after the end of the stream")
    stream.recv_left -= len(payload)
    if stream.recv_left < 0:
        raise StreamFault(number, ErrorCode.FLOW_CONTROL_ERROR, "more than the stream's window")
    if flags & PADDED:
        payload = unpadded(payload, flags)
    size = len(payload)
    stream.received += size
    if flags & END_STREAM:
        if (
            stream.incoming is None
            and stream.one_request
            and size >= PREFIX_BYTES
            and payload[0] == 0
            and u32(payload, 1) == size - PREFIX_BYTES
            and size - PREFIX_BYTES <= connection.shared.limits.message_bytes_max
            and (stream.head.content_length is None or stream.head.content_length == stream.received)
        ):
            stream.remote_ended = True
            running.whole(connection, stream, payload[PREFIX_BYTES:])
            return
    elif not size:
        connection.spend("empties")
    _kept(connection, stream, payload, bool(flags & END_STREAM))


def _kept(connection: Connection, stream: Stream, payload: bytes, last: bool) -> None:
    """Bytes of a message that does not come in one frame, or of a stream of messages."""
    if payload:
        try:
            connection.intake.keep(stream, payload)
        except GrpcError as refused:
            connection.fail(stream, refused.status, refused.message)
            return
    if last:
        _ended(connection, stream)
    else:
        connection.intake.credit(stream)
        stream.wake_reader()


def _ended(connection: Connection, stream: Stream) -> None:
    """The peer has half-closed."""
    stream.remote_ended = True
    if stream.head.content_length not in (None, stream.received):
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "content-length is not what came")
    if not stream.one_request:
        if stream.task is None:
            running.start(connection, stream, None)
        stream.wake_reader()
        return
    try:
        message = connection.intake.take(stream)
    except GrpcError as refused:
        connection.fail(stream, refused.status, refused.message)
        return
    if message is None:
        connection.fail(stream, Status.INTERNAL, "the one request is missing or cut short")
    elif stream.incoming:
        connection.fail(stream, Status.INTERNAL, "more than one request on a call that takes one")
    else:
        running.whole(connection, stream, message)


def _on_rst_stream(connection: Connection, _: int, number: int, payload: bytes) -> None:
    _sized(payload, 4, "RST_STREAM")
    if not number & 1:
        raise _fault("RST_STREAM on a stream that no client opens")
    connection.spend("resets")
    stream = connection.streams.get(number)
    if stream is not None:
        connection.shared.tally["cancelled"] += 1
        connection.drop(stream)


def _on_settings(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    if number:
        raise _fault("SETTINGS on a stream")
    if flags & ACK:
        _sized(payload, 0, "an acknowledgement of SETTINGS")
        return
    connection.spend("settings")
    outbox = connection.outbox
    for key, value in set_.parsed(payload):
        if key == set_.INITIAL_WINDOW_SIZE:
            change, outbox.initial = value - outbox.initial, value
            for stream in list(connection.streams.values()):
                try:
                    outbox.gain_stream(stream, change)
                except StreamFault as fault:
                    raise _fault(fault.what, ErrorCode.FLOW_CONTROL_ERROR) from fault
        elif key == set_.MAX_FRAME_SIZE:
            outbox.frame_max = value
        elif key == set_.HEADER_TABLE_SIZE:
            outbox.table_set()
    outbox.control(frame(SETTINGS, ACK, 0))


def _on_ping(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    _sized(payload, 8, "PING")
    if number:
        raise _fault("PING on a stream")
    if flags & ACK:
        connection.pinged(payload)
        return
    connection.spend("pings")
    connection.outbox.control(frame(PING, ACK, 0, payload))


def _on_goaway(connection: Connection, _: int, number: int, payload: bytes) -> None:
    if number:
        raise _fault("GOAWAY on a stream")
    if len(payload) < 8:
        raise _fault("GOAWAY of a wrong length", ErrorCode.FRAME_SIZE_ERROR)
    connection.leaving = True


def _on_window_update(connection: Connection, _: int, number: int, payload: bytes) -> None:
    _sized(payload, 4, "WINDOW_UPDATE")
    connection.spend("windows")
    gain = u32(payload) & 0x7FFF_FFFF
    if not number:
        if not gain:
            raise _fault("WINDOW_UPDATE of nothing")
        connection.outbox.gain(gain)
        return
    if number > connection.last_stream or not number & 1:
        raise _fault("WINDOW_UPDATE on a stream that was never opened")
    stream = connection.streams.get(number)
    if stream is None:
        return
    if not gain:
        raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
    connection.outbox.gain_stream(stream, gain)


def _on_priority(connection: Connection, _: int, number: int, payload: bytes) -> None:
    if not number:
        raise _fault("PRIORITY of the connection")
    connection.spend("unknown")
    if len(payload) != 5:
        raise StreamFault(number, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")


def _on_push_promise(*_: object) -> None:
    raise _fault("PUSH_PROMISE from a client")


FRAMES: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    DATA: _on_data,
    HEADERS: _on_headers,
    PRIORITY: _on_priority,
    RST_STREAM: _on_rst_stream,
    SETTINGS: _on_settings,
    PUSH_PROMISE: _on_push_promise,
    PING: _on_ping,
    GOAWAY: _on_goaway,
    WINDOW_UPDATE: _on_window_update,
    CONTINUATION: _on_continuation,
}
