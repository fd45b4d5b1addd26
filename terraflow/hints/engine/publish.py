"""KV events over ZeroMQ: a PUB socket for what happens, a ROUTER socket for what was missed.

1. Frames are [topic, sequence u64 BE, payload]; the sequence begins at 0 with the process and has no holes.
2. A replay request is ["", start u64 BE]; the answer is every kept batch from there, ["", sequence, payload] or
   ["", topic, sequence, payload], then the end marker: sequence -1 and an empty payload. Other requests are ignored.
3. Batches are kept for replay by number and by bytes, the oldest go first.
4. Nobody listening, or too slowly, costs batches, never time: nothing here waits for a reader.
5. Faults happen only when asked for, by an engine of tests.

Source of the wire: vLLM's kv_events.py, ZmqEventPublisher.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence

import msgspec
import zmq
import zmq.asyncio

from terraflow.hints.engine.wire import Event, Form, encode

END = (-1).to_bytes(8, "big", signed=True)
REPLAY_TURN = 64
"""Batches of a replay between which others get their turn."""


class Faults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong on purpose. Shares are 0…1 of all batches."""

    drop: float = 0.0
    """Not published, but kept for replay."""
    lose: float = 0.0
    """Neither published nor kept: a hole for good."""
    garbage: float = 0.0
    """Published and kept as bytes that are no batch."""
    stall_s: float = 0.0
    """Answers over HTTP, metrics too, come that much later."""

    def __post_init__(self) -> None:
        if not all(0.0 <= share <= 1.0 for share in (self.drop, self.lose, self.garbage)):
            raise ValueError("shares of faults are within 0 and 1")
        if not 0.0 <= self.stall_s <= 3600.0:
            raise ValueError("a stall is within 0 and 3600 seconds")


class Publisher:
    """Binds both sockets at once; `run` answers replays until it is cancelled."""

    def __init__(
        self,
        *,
        endpoint: str,
        replay_endpoint: str,
        form: Form,
        topic: str = "",
        replay_topic: bool = False,
        kept_batches: int = 10_000,
        kept_bytes: int = 64 << 20,
        faults: Faults | None = None,
        seed: int = 0,
    ) -> None:
        self.faults = faults or Faults()
        self._form, self._topic, self._replay_topic = form, topic.encode(), replay_topic
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_batches, self._kept_bytes, self._bytes = kept_batches, kept_bytes, 0
        self._next = 0
        self._luck = random.Random(seed)  # noqa: S311 - which batches go wrong, in tests
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._router = zmq.asyncio.Socket(self._context, zmq.ROUTER)
        try:
            for socket in (self._pub, self._router):
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.IPV6, int("[" in endpoint))
            self._pub.setsockopt(zmq.SNDHWM, kept_batches)
            self._router.setsockopt(zmq.SNDHWM, kept_batches + REPLAY_TURN)
            self._router.setsockopt(zmq.RCVHWM, 64)
            self._router.setsockopt(zmq.MAXMSGSIZE, 1024)
            self._pub.bind(endpoint)
            self._router.bind(replay_endpoint)
        except zmq.ZMQError:
            self.close()
            raise
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def publish(self, events: Sequence[Event]) -> None:
        """One batch."""
        sequence, self._next = self._next, self._next + 1
        payload = encode(events, self._form, time.time())
        if self._happens(self.faults.lose):
            return
        if self._happens(self.faults.garbage):
            payload = b"\xc1" + payload[: self._luck.randrange(16)]
        self._keep(sequence, payload)
        if self._happens(self.faults.drop):
            return
        self._pub.send_multipart([self._topic, sequence.to_bytes(8, "big"), payload], zmq.NOBLOCK)

    async def run(self) -> None:
        """Answer replay requests, one after the other."""
        while True:
            peer, *asked = await self._router.recv_multipart()
            if len(asked) == 2 and not asked[0] and len(asked[1]) == 8:
                await self._replay(peer, int.from_bytes(asked[1], "big"))

    async def _replay(self, peer: bytes, start: int) -> None:
        head = [peer, b"", self._topic] if self._replay_topic else [peer, b""]
        for turn, (sequence, payload) in enumerate(list(self._kept)):
            if turn % REPLAY_TURN == 0:
                await asyncio.sleep(0)
            if sequence >= start:
                await self._router.send_multipart([*head, sequence.to_bytes(8, "big"), payload])
        await self._router.send_multipart([*head, END, b""])

    def close(self) -> None:
        """Give back the sockets."""
        self._pub.close()
        self._router.close()
        self._context.term()

    def _keep(self, sequence: int, payload: bytes) -> None:
        self._kept.append((sequence, payload))
        self._bytes += len(payload)
        while len(self._kept) > self._kept_batches or self._bytes > self._kept_bytes:
            self._bytes -= len(self._kept.popleft()[1])

    def _happens(self, share: float) -> bool:
        return share > 0.0 and self._luck.random() < share
