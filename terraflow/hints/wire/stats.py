"""A replica's statistics as the contract's message."""

from __future__ import annotations

from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import Stats


def stats_message(replica: str, stats: Stats) -> pb.ReplicaStats:
    """The message."""
    return pb.ReplicaStats(
        replica_id=replica,
        cache_memory_bytes=stats.cache_memory_bytes,
        hit_rate=stats.hit_rate,
        pressure=stats.pressure,
        client_version=stats.client_version,
        t2_hit_tokens=stats.t2_hit_tokens,
        t2_query_tokens=stats.t2_query_tokens,
    )
