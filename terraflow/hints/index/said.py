"""What the index is told and what it tells: a tenant's rule, what an ingest did, a change, a piece of a snapshot.

1. Entries (replica × key) are what changes speak of: a key that two replicas hold is added twice and evicted twice.
2. A piece is plain data that any encoder of structs can write; it holds ages, never times, so that it means the same
   after a restart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from terraflow.hints.words import Stats


class TenantRule(msgspec.Struct, frozen=True):
    """How a tenant's entries age and leave. `keys_max` None: the index's own quota, if it has one; 0 admits nothing."""

    ttl_s: float
    lfu: bool
    keys_max: int | None


class Ingested(NamedTuple):
    """Entries that a report made, renewed, and that were not taken (no quota, or malformed)."""

    admitted: int
    refreshed: int
    refused: int


class Kind(StrEnum):
    """What a change is about."""

    ADDED = "added"
    EVICTED = "evicted"
    UPDATED = "updated"
    CLEARED = "cleared"


class Change(NamedTuple):
    """One change. `hash` and `adapter` are empty for UPDATED (new statistics) and CLEARED."""

    kind: Kind
    replica: str
    model: str
    tenant: str
    hash: bytes = b""
    adapter: str = ""


class Cause(StrEnum):
    """Why an entry left; the values are the metrics' labels."""

    TTL = "ttl"
    CAP = "cap"
    QUOTA = "quota"
    EVENT = "event"
    CLEAR = "clear"


class Row(NamedTuple):
    """An entry of a piece: places in its lists, what was reported, and its place in the order of arrival."""

    key: int
    replica: int
    tokens: int
    tier: int
    age_s: float
    credits: int
    order: float
    degraded: bool


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a snapshot, of one tenant. Pieces of one dump are put back in their order.

    `spaces`: (model, scheme, adapter). Key i is `hashes[i]` in space `key_spaces[i]`; those in `digests` are the
    SHA-256 of a longer hash. `stats`: (model, replica, statistics, age). `until`: the end of the order of arrival.
    """

    tenant: str
    until: float
    spaces: list[tuple[str, str, str]] = []
    replicas: list[str] = []
    hashes: list[bytes] = []
    key_spaces: list[int] = []
    digests: list[int] = []
    rows: list[Row] = []
    stats: list[tuple[str, str, Stats, float]] = []
