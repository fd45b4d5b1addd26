"""Simulated replicas: each a prefix cache and a prefill queue, first come first served.

1. A request's prefill begins when it is there and the one before it is done, and costs the tokens that the cache does
   not hold. First token: the end of the prefill. End: that and the decode time.
2. Caches change in order of arrival, which on one replica is the order of the queue. What the world may know of it is
   told later: evictions when the prefill begins, new blocks when it is done.
3. Nothing here chooses, and nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from terraflow.hints.engine.cache import BlockCache
from terraflow.hints.replay.trace import BLOCK_TOKENS, TraceRequest


class Speeds(NamedTuple):
    """What a replica does in a second, in tokens. A decode speed of 0: a request ends with its first token."""

    prefill_tokens_per_s: float = 8000.0
    decode_tokens_per_s: float = 0.0


class Served(NamedTuple):
    """What became of one request. `held` is how many leading blocks are in the cache for it, `added` the last so many
    of these that were new, `removed` what went."""

    replica: int
    hit_tokens: int
    ttft_s: float
    begun_at: float
    first_token_at: float
    ended_at: float
    held: int
    added: int
    removed: Sequence[int]


class Fleet:
    """Replicas 0…n−1. `pooled`: all share one cache of their sizes' sum, whoever prefills."""

    def __init__(self, replicas: int, blocks: int, speeds: Speeds, *, pooled: bool) -> None:
        if replicas < 1 or not speeds.prefill_tokens_per_s > 0 or speeds.decode_tokens_per_s < 0:
            raise ValueError("a fleet has one replica at least, and speeds above 0")
        pool: BlockCache[int] = BlockCache(blocks * replicas)
        self._caches = [pool if pooled else BlockCache[int](blocks) for _ in range(replicas)]
        self._speeds = speeds
        self.free_at = [0.0] * replicas
        """When each replica's queue is empty."""
        self.prefilled_tokens = [0] * replicas
        """What each had to prefill so far."""
        self.in_flight = [0] * replicas
        """Requests sent to each and not yet ended; who runs the fleet's clock keeps it."""

    def __len__(self) -> int:
        return len(self._caches)

    def serve(self, request: TraceRequest, replica: int, now: float) -> Served:
        """Put the request into that replica's queue."""
        stored = self._caches[replica].store(request.hash_ids)
        hit_tokens = min(stored.hit * BLOCK_TOKENS, request.input_length)
        missed = request.input_length - hit_tokens
        begun_at = max(now, self.free_at[replica])
        first_token_at = begun_at + missed / self._speeds.prefill_tokens_per_s
        decode_s = request.output_length / self._speeds.decode_tokens_per_s if self._speeds.decode_tokens_per_s else 0.0
        self.free_at[replica] = first_token_at
        self.prefilled_tokens[replica] += missed
        return Served(
            replica=replica,
            hit_tokens=hit_tokens,
            ttft_s=first_token_at - now,
            begun_at=begun_at,
            first_token_at=first_token_at,
            ended_at=first_token_at + decode_s,
            held=stored.hit + len(stored.added),
            added=len(stored.added),
            removed=stored.removed,
        )
