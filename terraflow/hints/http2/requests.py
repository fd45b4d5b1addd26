"""The frames that make calls: HEADERS, CONTINUATION and DATA.

A frame on a stream that the server itself ended early is what was under way, and is ignored; on any other ended stream
it is a fault.
"""

from __future__ import annotations

from terraflow.hints.http2 import running
from terraflow.hints.http2.connection import Connection
from terraflow.hints.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITISED,
    ErrorCode,
    StreamFault,
    protocol_error,
    u32,
    unpadded,
)
from terraflow.hints.http2.heads import Head, Malformed
from terraflow.hints.http2.messages import PREFIX_BYTES
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.http2.stream import OpenBlock, Stream


def on_headers(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    """A request's head, or trailers."""
    if not number & 1:
        raise protocol_error("HEADERS on a stream that no client opens")
    if flags & (PADDED | PRIORITISED):
        payload = unpadded(payload, flags)
        if flags & PRIORITISED:
            if len(payload) < 5:
                raise protocol_error("HEADERS too short for its priority", ErrorCode.FRAME_SIZE_ERROR)
            payload = payload[5:]
    if flags & END_HEADERS:
        _on_block(connection, flags, number, payload)
    else:
        connection.open_block = OpenBlock(number, flags, payload, connection.now)


def on_continuation(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    """More of a header block."""
    open_block = connection.open_block
    if open_block is None or open_block.stream != number:
        raise protocol_error("CONTINUATION of nothing")
    if not payload:
        connection.spend("empties")
    open_block.block += payload
    if len(open_block.block) > connection.shared.limits.header_block_bytes_max:
        raise protocol_error("the header block is too large", ErrorCode.ENHANCE_YOUR_CALM)
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
        raise protocol_error("HEADERS on a stream that has ended", ErrorCode.STREAM_CLOSED)
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


def on_data(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    """Bytes of messages."""
    connection.intake.received(len(payload))
    stream = connection.streams.get(number)
    if stream is None:
        if number > connection.last_stream or not number & 1:
            raise protocol_error("DATA on a stream that was never opened")
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
