"""`GET /snapshot`: what is known of replicas and tenants, in the contract's JSON.

1. Sorted by tenant, then by replica; a replica with several models is one row, with its newest statistics.
2. The probe's tenant is left out.
3. A time that never was is the contract's zero time, 0001-01-01T00:00:00Z.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from terraflow.hints.deciding.rank import float32
from terraflow.hints.words import PROBE_TENANT, ReplicaState, Stats

if TYPE_CHECKING:
    from terraflow.hints.live import LiveHints

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = "0001-01-01T00:00:00Z"
_TENANT = attrgetter("tenant")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True, rename=_camel):
    """One replica of one tenant."""

    replica_id: str
    tenant: str
    cache_memory_bytes: int
    hit_rate: float
    pressure: float
    last_update: str
    prefix_count: int
    last_event_at: str
    stats_reported: bool
    t2_hit_tokens: int
    t2_query_tokens: int


class TenantRow(msgspec.Struct, frozen=True, kw_only=True, rename=_camel):
    """One tenant. `memory_used` is the contract's, and 0: engines do not say it by tenant."""

    tenant_id: str
    index_entries: int
    hit_rate: float
    hit_rate_reported: bool
    memory_used: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename=_camel):
    """The whole page."""

    replicas: list[ReplicaRow]
    tenants: list[TenantRow]
    total_prefixes: int
    hot_prefixes: int


def overview(live: LiveHints) -> Overview:
    """The page as things stand now."""
    index, clock = live.index, live.clock
    now, wall_us = clock.monotonic(), clock.now()

    def moment(at: float | None) -> str:
        if at is None:
            return _NEVER
        then = _EPOCH + timedelta(microseconds=wall_us + round((at - now) * 1e6))
        return then.isoformat().replace("+00:00", "Z")

    found: defaultdict[tuple[str, str], list[ReplicaState]] = defaultdict(list)
    for state in index.states(None, None, now):
        if state.tenant != PROBE_TENANT:
            found[state.tenant, state.replica].append(state)
    rows = [_row(*of, states, moment) for of, states in sorted(found.items())]
    return Overview(
        replicas=rows,
        tenants=[_tenant(tenant, list(own), index.keys(tenant)) for tenant, own in groupby(rows, _TENANT)],
        total_prefixes=index.keys() - index.keys(PROBE_TENANT),
        hot_prefixes=index.hot(None, None, now) - index.hot(PROBE_TENANT, None, now),
    )


def _row(tenant: str, replica: str, states: list[ReplicaState], moment: Callable[[float | None], str]) -> ReplicaRow:
    told = [state for state in states if state.stats is not None and state.stats_at is not None]
    newest = max(told, key=lambda state: state.stats_at or 0.0, default=None)
    stats = newest.stats if newest is not None and newest.stats is not None else Stats()
    return ReplicaRow(
        replica_id=replica,
        tenant=tenant,
        cache_memory_bytes=stats.cache_memory_bytes,
        hit_rate=float32(stats.hit_rate),
        pressure=float32(stats.pressure),
        last_update=moment(newest.stats_at if newest is not None else None),
        prefix_count=sum(state.keys for state in states),
        last_event_at=moment(max((state.event_at for state in states if state.event_at is not None), default=None)),
        stats_reported=newest is not None,
        t2_hit_tokens=stats.t2_hit_tokens,
        t2_query_tokens=stats.t2_query_tokens,
    )


def _tenant(tenant: str, rows: list[ReplicaRow], entries: int) -> TenantRow:
    rates = [row.hit_rate for row in rows if row.stats_reported]
    return TenantRow(
        tenant_id=tenant,
        index_entries=entries,
        hit_rate=float32(sum(rates) / len(rates)) if rates else 0.0,
        hit_rate_reported=bool(rates),
    )
