"""Where entries belong: tenant, (tenant, model), a scope's adapter, and what one replica holds of one scope.

1. These are few, objects each, and bounded by the index; keys and entries are many and live in flat memory (table.py).
2. Lists are threads through that flat memory: here are their ends. 0 is no key, no entry.
3. The file is also compiled (places.pxd); every field is declared there.
"""

from __future__ import annotations

from math import inf
from typing import Any

from terraflow.hints.index.heap import Heap

CAUSES = 5


class Tenant:
    """A tenant: its rule, its keys in order of arrival, and how many of its entries left by which cause.

    `keys_max` below 0: it has no quota. `told_at`: when it was last told of an entry. Of its places the one that was
    told of last is the last.
    """

    def __init__(self, name: str, ttl_s: float, keys_max: int) -> None:
        self.name = name
        self.ttl_s = ttl_s
        self.lfu = False
        self.keys_max = keys_max
        self.told_at = -inf
        self.keys = 0
        self.sources = 0
        self.spaces = 0
        self.holdings = 0
        self.first = 0
        self.last = 0
        self.removed = [0] * CAUSES
        self.places: dict[str, Place] = {}


class Place:
    """A tenant's model: its keys, its scopes by scheme, its replicas, and its hot keys by the time of a credit.

    `hot[slot]` counts keys whose last credit but one fell into that slot of time; slots before `hot_from` are gone.
    `told_at`: when it was last told of an entry.
    """

    def __init__(self, tenant: Tenant, model: str) -> None:
        self.tenant = tenant
        self.model = model
        self.told_at = -inf
        self.keys = 0
        self.hot: dict[int, int] = {}
        self.hot_from = 0
        self.scopes: dict[str, ScopeAt] = {}
        self.sources: dict[str, Source] = {}


class ScopeAt:
    """A scope: its spaces by adapter, and who holds something in it."""

    def __init__(self, place: Place, scheme: str) -> None:
        self.place = place
        self.scheme = scheme
        self.spaces: dict[str, Space] = {}
        self.holdings: dict[str, Holding] = {}


class Space:
    """A scope's adapter: where hashes are unique."""

    def __init__(self, number: int, scope: ScopeAt, adapter: str) -> None:
        self.number = number
        self.scope = scope
        self.place = scope.place
        self.tenant = scope.place.tenant
        self.adapter = adapter
        self.keys = 0


class Source:
    """A replica of a place: what it said of itself, when it was last heard, and what it holds by scheme.

    Entries that arrived up to `mark` are degraded.
    """

    def __init__(self, place: Place, replica: str) -> None:
        self.place = place
        self.replica = replica
        self.stats: Any = None
        self.stats_at: float | None = None
        self.event_at: float | None = None
        self.heard_at = 0.0
        self.mark = -1.0
        self.holdings: list[Holding] = []


class Holding:
    """What one replica holds of one scope.

    `first` … `last`: entries in order of arrival, but for those in `old` (by arrival) and `rare` (by credits, then
    arrival), which hold credited entries and ones that were restored out of order. `seen`: the batches, latest first.
    `dead`: cleared, no longer to be seen, its entries wait to be taken out.
    """

    def __init__(self, number: int, scope: ScopeAt, source: Source, seen: Heap) -> None:
        self.number = number
        self.scope = scope
        self.source = source
        self.tenant = scope.place.tenant
        self.size = 0
        self.first = 0
        self.last = 0
        self.seen = seen
        self.old: Heap | None = None
        self.rare: Heap | None = None
        self.dead = False
