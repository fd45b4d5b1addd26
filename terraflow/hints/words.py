"""The words of route hints: scopes, reports, statistics, and the bounds on what strangers send.

1. Two units that never mix: quotas and entry gauges count distinct *keys*, the cap counts *entries* (replica × key).
2. A key is (tenant, model, scheme, adapter, hash). A scope leaves out the adapter, on purpose: it is what replica
   counts, TENANT_HOT, affinity and the UNKNOWN_* codes speak of.
3. Times are seconds of the server's monotonic clock, as floats; nothing here knows the date.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

import msgspec

PROBE_TENANT = "inferencecache.io/probe"
"""Reserved for functional probes: lookups answer NO_HINT, snapshots leave it out."""

TOKEN_IDS_MAX = 1 << 20
PROMPT_TEXT_BYTES_MAX = 1 << 20
BLOCKS_MAX = 1 << 16
IDENTIFIER_BYTES_MAX = 1 << 16
"""What one message may hold. More is NO_HINT on a lookup, and dropped and counted on ingest."""
MESSAGE_BYTES_MAX = 4 << 20
"""What a message may be; a larger one is refused by the server before it is read (RESOURCE_EXHAUSTED)."""

STAMP_SKEW_MAX_S = 5.0
"""How far a producer's stamp may move a receive time, either way; never by more than a tenth of the TTL."""


def longer(text: str, bytes_max: int) -> bool:
    """Whether the text has more than so many bytes as UTF-8; short ones are not encoded to find out."""
    return len(text) * 4 > bytes_max and (
        len(text) > bytes_max or len(text.encode("utf-8", "surrogatepass")) > bytes_max
    )


class Scope(NamedTuple):
    """Where a lookup looks."""

    tenant: str
    model: str
    scheme: str


class Tier(IntEnum):
    """Where a replica keeps a block. A greater one is colder; what a report names beyond these counts as coldest."""

    UNSPECIFIED = 0
    MEMORY = 1
    OFFLOADED = 2
    REMOTE = 3
    UNKNOWN = 4


class Entry(NamedTuple):
    """Blocks that a report says a replica holds: `counts[i]` tokens are cached up to and including `hashes[i]`.

    Already taken apart: a chain is one entry with cumulative counts; a prefix hash beside it is another of one block.
    """

    adapter: str
    hashes: list[bytes]
    counts: list[int]
    tier: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica last said of itself; NaN and infinities are already 0."""

    cache_memory_bytes: int = 0
    hit_rate: float = 0.0
    pressure: float = 0.0
    client_version: str = ""
    t2_hit_tokens: int = 0
    t2_query_tokens: int = 0


FULL_LOAD_REQUESTS = 256
"""So many requests that run or wait at a replica are a pressure of 1."""

PRESSURE_AGE_MAX_S = 30.0
"""Engines' metrics are read every few seconds: a pressure that is older tells fleets nothing of now."""

FLEET_SHARE_MIN = 0.05
"""A match below this share of the prompt is a system prompt that everybody shares: for fleets no reason to go anywhere,
unless the service's setting or a tenant's policy says otherwise."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One CacheStateUpdate, parsed. An empty scheme has no entries, whatever was sent.

    `skew_s`: the producer's stamp minus the server's wall clock at receipt, 0 for an unstamped report; unclamped.
    """

    replica: str
    model: str
    tenant: str
    scheme: str
    entries: tuple[Entry, ...] = ()
    stats: Stats | None = None
    skew_s: float = 0.0

    @property
    def scope(self) -> Scope:
        """The scope that its entries go to."""
        return Scope(self.tenant, self.model, self.scheme)


class Held(NamedTuple):
    """What one replica holds of a lookup: the leading run of a chain, or the one key of an exact match.

    `tokens` is the sum of the request's counts over the run; for an exact match the stored count. `seen_at` is that of
    the run's oldest block, `tier` the coldest. `degraded`: some block of the run stems from before its source was lost.
    """

    replica: str
    blocks: int
    tokens: int
    seen_at: float
    tier: int
    degraded: bool


class Known(StrEnum):
    """How much of a scope has a key within its TTL."""

    NOTHING = "nothing"
    """The whole index is empty."""
    OTHER_TENANTS = "other_tenants"
    OTHER_MODELS = "other_models"
    OTHER_SCHEMES = "other_schemes"
    SCOPE = "scope"


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of (tenant, model), as the index knows it. Times are None for what never came."""

    tenant: str = ""
    model: str = ""
    replica: str
    stats: Stats | None
    stats_at: float | None
    event_at: float | None
    keys: int
