"""The sockets of one engine: SUB for what it publishes, a DEALER for each replay, and whether the connection stands.

1. Nothing is understood here: frames come out as (sequence, payload), and None for a message that is malformed.
2. What waits in a socket is bounded, by number and by the size of a message.
3. Reconnecting is ZeroMQ's, with a growing delay. Its own heartbeats find a peer that is gone without a word.
4. Each replay has a socket of its own, so that an answer to an abandoned one reaches nobody.

Frames: [topic, sequence u64 big-endian, payload]. A replay is asked for with ["", start u64] and answered with
["", sequence, payload] or ["", topic, sequence, payload]; sequence −1 ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from terraflow.hints.events.parse import PAYLOAD_BYTES_MAX

SEQUENCE_BYTES = 8
END = (1 << 64) - 1
SEQUENCE_MAX = (1 << 63) - 1
"""Engines count from 0: what is beyond is no sequence, and what follows it would be none that can be kept."""
TURN_S = 0.002
"""How long messages are taken in before others get their turn; one of thousands of blocks takes some ms more."""
RECONNECT_MS = (100, 10_000)


class Message(NamedTuple):
    """A numbered payload; sequence `END` ends a replay."""

    sequence: int
    payload: bytes


def parse_message(frames: list[bytes]) -> Message | None:
    """The message of a published or a replayed multipart, None if it is neither."""
    if len(frames) not in (3, 4) or len(frames[-2]) != SEQUENCE_BYTES:
        return None
    return Message(int.from_bytes(frames[-2], "big"), frames[-1])


class Subscription:
    """The SUB socket, and its monitor."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str, topic: str, receive_max: int, heartbeat_s: float):
        self._socket: Any = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, receive_max)
        self._socket.setsockopt(zmq.MAXMSGSIZE, PAYLOAD_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, int(heartbeat_s * 250))
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(heartbeat_s * 500))
        self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._monitor: Any = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._direct: Any = zmq.Socket.shadow(self._socket.underlying)
        self._socket.connect(endpoint)

    async def receive(self, take: Callable[[Message | None], Awaitable[None] | None]) -> None:
        """Hand over messages for good, each when what `take` returned for the one before is done.

        Raises `zmq.ZMQError` if the socket fails, and what `take` raises.
        """
        now = asyncio.get_running_loop().time
        while True:
            await self._socket.poll()
            until = now() + TURN_S
            while now() < until:
                try:
                    frames = self._direct.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                message = parse_message(frames)
                if message is not None and message.sequence > SEQUENCE_MAX:
                    message = None
                more = take(message)
                if more is not None:
                    await more
            await asyncio.sleep(0)

    async def watch(self, changed: Callable[[bool], None]) -> None:
        """Tell of every connection made and lost, for good."""
        while True:
            event = parse_monitor_message(await self._monitor.recv_multipart())["event"]
            changed(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)

    def close(self) -> None:
        """Give the sockets back. Idempotent."""
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)


async def replay(
    context: zmq.asyncio.Context,
    endpoint: str,
    start: int,
    receive_max: int,
    timeout_s: float,
    take: Callable[[Message], Awaitable[bool]],
) -> bool:
    """Ask for what the engine still has from `start` on; whether the end marker came.

    `take` says whether to go on. Without an answer, or the next part of it, within `timeout_s`, and with one that is
    malformed, this ends with False.
    """
    socket: Any = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, receive_max)
        socket.setsockopt(zmq.MAXMSGSIZE, PAYLOAD_BYTES_MAX)
        socket.connect(endpoint)
        await socket.send_multipart([b"", start.to_bytes(SEQUENCE_BYTES, "big")])
        now = asyncio.get_running_loop().time
        until = now() + TURN_S
        while True:
            if not await socket.poll(int(timeout_s * 1_000)):
                return False
            message = parse_message(await socket.recv_multipart())
            if now() > until:
                await asyncio.sleep(0)
                until = now() + TURN_S
            if message is None:
                return False
            if message.sequence == END:
                return True
            if message.sequence > SEQUENCE_MAX:
                return False
            if not await take(message):
                return False
    except zmq.ZMQError:
        return False
    finally:
        socket.close(linger=0)
