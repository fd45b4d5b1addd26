"""The frames that say something of a stream or of the connection: RST_STREAM, SETTINGS, PING, GOAWAY and the like.

One leniency: RST_STREAM on a stream that was never opened is ignored, though RFC 9113 (section 5.1) ends the connection
for it. Older versions of grpcio send it when a call is cancelled before its HEADERS have gone, and the connection's
other calls are not at fault.
"""

from __future__ import annotations

from terraflow.hints.http2 import settings as set_
from terraflow.hints.http2.connection import Connection
from terraflow.hints.http2.frames import ACK, PING, SETTINGS, ErrorCode, StreamFault, frame, protocol_error, sized, u32


def on_rst_stream(connection: Connection, _: int, number: int, payload: bytes) -> None:
    """The caller leaves."""
    sized(payload, 4, "RST_STREAM")
    if not number & 1:
        raise protocol_error("RST_STREAM on a stream that no client opens")
    connection.spend("resets")
    stream = connection.streams.get(number)
    if stream is not None:
        connection.shared.tally["cancelled"] += 1
        connection.drop(stream)


def on_settings(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    """What the peer can take."""
    if number:
        raise protocol_error("SETTINGS on a stream")
    if flags & ACK:
        sized(payload, 0, "an acknowledgement of SETTINGS")
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
                    raise protocol_error(fault.what, ErrorCode.FLOW_CONTROL_ERROR) from fault
        elif key == set_.MAX_FRAME_SIZE:
            outbox.frame_max = value
        elif key == set_.HEADER_TABLE_SIZE:
            outbox.table_set()
    outbox.control(frame(SETTINGS, ACK, 0))


def on_ping(connection: Connection, flags: int, number: int, payload: bytes) -> None:
    """Answered, or an answer."""
    sized(payload, 8, "PING")
    if number:
        raise protocol_error("PING on a stream")
    if flags & ACK:
        connection.pinged(payload)
        return
    connection.spend("pings")
    connection.outbox.control(frame(PING, ACK, 0, payload))


def on_goaway(connection: Connection, _: int, number: int, payload: bytes) -> None:
    """The peer opens no more streams."""
    if number:
        raise protocol_error("GOAWAY on a stream")
    if len(payload) < 8:
        raise protocol_error("GOAWAY of a wrong length", ErrorCode.FRAME_SIZE_ERROR)
    connection.leaving = True


def on_window_update(connection: Connection, _: int, number: int, payload: bytes) -> None:
    """The peer has read."""
    sized(payload, 4, "WINDOW_UPDATE")
    connection.spend("windows")
    gain = u32(payload) & 0x7FFF_FFFF
    if not number:
        if not gain:
            raise protocol_error("WINDOW_UPDATE of nothing")
        connection.outbox.gain(gain)
        return
    if number > connection.last_stream or not number & 1:
        raise protocol_error("WINDOW_UPDATE on a stream that was never opened")
    stream = connection.streams.get(number)
    if stream is None:
        return
    if not gain:
        raise StreamFault(number, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
    connection.outbox.gain_stream(stream, gain)


def on_priority(connection: Connection, _: int, number: int, payload: bytes) -> None:
    """Means nothing here."""
    if not number:
        raise protocol_error("PRIORITY of the connection")
    connection.spend("unknown")
    if len(payload) != 5:
        raise StreamFault(number, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of a wrong length")


def on_push_promise(*_: object) -> None:
    """Not a client's to send."""
    raise protocol_error("PUSH_PROMISE from a client")
