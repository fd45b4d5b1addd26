"""What one server, connection and call may use, and how often a peer may ask for work that is not a call.

1. Every bound is a setting; none can be switched off.
2. A bucket holds `burst` tokens and gains `per_s` a second: a peer that empties one is told ENHANCE_YOUR_CALM, and its
   connection ends. Each row of BUCKETS names what takes a token.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in bytes, counts and seconds."""

    connections_max: int = 1_024
    connections_per_address_max: int = 256
    streams_max: int = 256
    """Calls of one connection at a time; those that were given up and still clean up count."""
    message_bytes_max: int = 4 << 20
    """One message, before and after decompression."""
    assembling_bytes_max: int = 16 << 20
    """Parts of messages that one connection may have under way."""
    server_assembling_bytes_max: int = 128 << 20
    """The same for all connections together."""
    header_block_bytes_max: int = 32 << 10
    """A header block as it comes over the wire, its continuations included: more ends the connection."""
    header_list_bytes_max: int = 64 << 10
    """The same decoded, 32 bytes added a field: more ends the connection."""
    metadata_bytes_max: int = 16 << 10
    """What a call's header list may be: more is RESOURCE_EXHAUSTED, as the peer was told in SETTINGS."""
    stream_window_bytes: int = 256 << 10
    """What a client may send on one stream before the handler has read it."""
    connection_window_bytes: int = 4 << 20
    unsent_bytes_high: int = 256 << 10
    """Above this much unsent, nothing is read and no reply begun."""
    turn_s: float = 0.004
    """How long one connection's frames are read before others have their turn."""
    handshake_s: float = 10.0
    """For TLS, and again for the first SETTINGS."""
    request_s: float = 60.0
    """For the one request of a unary or server-streaming call to arrive, and for a header block to be complete."""
    stalled_s: float = 60.0
    """How long a peer may take nothing of what it is owed."""
    keepalive_s: float = 120.0
    """A peer with calls that says nothing for so long is asked whether it is there, and given up after `stalled_s`."""
    idle_s: float = 900.0
    """A connection without calls is told to go after this."""
    deadline_s_max: float = 86_400.0
    """A longer grpc-timeout counts as this."""


class Rate(NamedTuple):
    """A bucket's size and its refill."""

    burst: int
    per_s: float


BUCKETS = {
    "pings": Rate(100, 10.0),  # PING without ACK
    "settings": Rate(32, 1.0),  # SETTINGS without ACK
    "resets": Rate(1_000, 33.0),  # RST_STREAM from the peer, and ours for what the peer did wrong
    "empties": Rate(256, 32.0),  # frames without content: DATA, CONTINUATION; frames on streams that have ended
    "unknown": Rate(1_024, 128.0),  # frames that mean nothing to us: PRIORITY, unknown types
    "windows": Rate(20_000, 20_000.0),  # WINDOW_UPDATE
}


class Bucket:
    """Tokens of one kind on one connection."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one; False when there is none."""
        if self._tokens < 1.0:
            self._tokens = min(float(self._rate.burst), self._tokens + (now - self._at) * self._rate.per_s)
            self._at = now
            if self._tokens < 1.0:
                return False
        elif self._tokens >= self._rate.burst:
            self._at = now
        self._tokens -= 1.0
        return True


class Budget:
    """The buckets of one connection, made as they are needed."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}

    def take(self, kind: str, now: float) -> bool:
        """Take a token of a row of BUCKETS; False when there is none."""
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = Bucket(BUCKETS[kind], now)
        return bucket.take(now)
