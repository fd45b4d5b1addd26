"""Ways to choose a replica, without hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import xxhash

from terraflow.hints.replay.fleet import Fleet, Served
from terraflow.hints.replay.trace import TraceRequest

HASHED_BLOCKS = 3
"""What plain hashing looks at: a prompt's first three blocks."""


class Choice(Protocol):
    """One way of choosing, for one run."""

    def choose(self, request: TraceRequest, now: float) -> int:
        """The replica for this request."""
        ...

    def begun(self, served: Served, request: TraceRequest, now: float) -> None:
        """Its prefill began: what it evicts is gone."""
        ...

    def first_token(self, served: Served, request: TraceRequest, now: float) -> None:
        """Its prefill is done: its blocks are there."""
        ...

    def ended(self, served: Served, request: TraceRequest, now: float) -> None:
        """It ended."""
        ...


class Unhinted:
    """Chooses by what it alone knows, and hears nothing of caches."""

    def __init__(self, pick: Callable[[TraceRequest], int]) -> None:
        self._pick = pick

    def choose(self, request: TraceRequest, now: float) -> int:
        """What was picked."""
        return self._pick(request)

    def begun(self, served: Served, request: TraceRequest, now: float) -> None:
        """Not of interest."""

    def first_token(self, served: Served, request: TraceRequest, now: float) -> None:
        """Not of interest."""

    def ended(self, served: Served, request: TraceRequest, now: float) -> None:
        """Not of interest."""


def round_robin(fleet: Fleet, seed: int) -> Choice:
    """One after the other."""
    turn = seed

    def pick(_: TraceRequest) -> int:
        nonlocal turn
        turn += 1
        return (turn - 1) % len(fleet)

    return Unhinted(pick)


def least_loaded(fleet: Fleet, seed: int) -> Choice:
    """The one with the fewest requests in flight; of equals the next one round."""
    turn, count = seed, len(fleet)

    def pick(_: TraceRequest) -> int:
        nonlocal turn
        turn += 1
        return min(((turn + step) % count for step in range(count)), key=fleet.in_flight.__getitem__)

    return Unhinted(pick)


def hashing(fleet: Fleet, seed: int) -> Choice:
    """By XXH3-64 over the first blocks' ids as little-endian u64, whatever the load."""

    def pick(request: TraceRequest) -> int:
        ids = b"".join([name.to_bytes(8, "little") for name in request.hash_ids[:HASHED_BLOCKS]])
        return xxhash.xxh3_64_intdigest(ids, seed=seed) % len(fleet)

    return Unhinted(pick)


def earliest(fleet: Fleet, seed: int) -> Choice:
    """The one whose queue is empty first: what an oracle that sees all queues would do."""
    return Unhinted(lambda _: min(range(len(fleet)), key=fleet.free_at.__getitem__))
