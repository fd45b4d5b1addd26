"""What a connection has waited too long for: the table of its timeouts, looked at once a second."""

from __future__ import annotations

from terraflow.hints.http2.connection import Connection
from terraflow.hints.http2.frames import ErrorCode
from terraflow.hints.http2.status import Status
from terraflow.hints.http2.stream import Stream


def look(connection: Connection, now: float) -> None:
    """End what has taken too long: the connection, or some of its streams."""
    limits, block = connection.shared.limits, connection.open_block
    if connection.outbox.paused:
        if now - connection.paused_since > limits.stalled_s:
            connection.abort()
    elif not connection.settled and now - connection.quiet_since > limits.handshake_s:
        connection.close(ErrorCode.SETTINGS_TIMEOUT, "no SETTINGS in time")
    elif block is not None and now - block.since > limits.request_s:
        connection.close(ErrorCode.ENHANCE_YOUR_CALM, "a header block takes too long")
    elif connection.streams and now - connection.heard_at > limits.keepalive_s:
        if now - connection.heard_at > limits.keepalive_s + limits.stalled_s:
            connection.abort()
        elif connection.asked_at < connection.heard_at:
            connection.ask()
    elif not connection.streams and not connection.tasks and now - connection.quiet_since > limits.idle_s:
        connection.drain()
    for stream in list(connection.streams.values()):
        _look_at(connection, stream, now)


def _look_at(connection: Connection, stream: Stream, now: float) -> None:
    limits = connection.shared.limits
    if stream.unsent is not None:
        if now - stream.moved_at > limits.stalled_s:
            connection.shared.tally["stalled"] += 1
            connection.fail(stream, Status.CANCELLED, "")
    elif stream.task is None:
        deadline = stream.call.deadline
        if now - stream.born_at > limits.request_s or (deadline is not None and now > deadline):
            connection.fail(stream, Status.DEADLINE_EXCEEDED, "the request did not come in time")
