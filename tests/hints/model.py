"""A plain model of the index: every question walks everything, so that one can see that it is right.

It has the API of `terraflow.hints.index.index.Index` under the same names, all but dump and restore, so a differential
test drives both with the same calls and compares every result:

    real, model = Index(entries_max=20), Model(entries_max=20)
    for step in history:                       # one now for both, and it never goes back
        assert step(real) == step(model)

1. A history that is compared result by result MUST keep to entries_max and key counts of a few dozen: the model is
   quadratic. `sweep` may be compared only by what reads say after it: when it removes what nobody sees is free.
2. `chain` and `exact` of the real one have no order: sort before comparing. A hash longer than 64 bytes is told to
   listeners as its SHA-256.
3. With stamps (`skew_s`), a sweep of the real one may leave an entry in place for ten seconds beyond its TTL, where
   only gauges, quota and cap count it: compare stamped histories without sweeps, or swept ones without stamps.
4. `removals` and gauges count what is swept or not yet swept, so compare them in histories without expiry, or after
   enough sweeps at a time when nothing lies within ten seconds of its TTL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from terraflow.hints.index.said import Cause, Change, Ingested, Kind, TenantRule
from terraflow.hints.words import (
    IDENTIFIER_BYTES_MAX,
    STAMP_SKEW_MAX_S,
    Held,
    Known,
    ReplicaState,
    Report,
    Scope,
    Stats,
    Tier,
)

_Key = tuple[str, str, str, str, bytes]
HOT_SLOTS = 64
"""Credits are dated to this part of the service's TTL."""
SILENT_S_MIN = 600.0
"""A replica that holds nothing is forgotten by a sweep when it was silent for so long, and for its TTL."""


class _Row:
    """One entry: what a replica said of a key, when it came, and its LFU credits."""

    def __init__(self) -> None:
        self.count = 0
        self.tier = 1
        self.seen = float("-inf")
        self.arrival = 0
        self.credits = 0


class _Source:
    """A replica of (tenant, model)."""

    def __init__(self) -> None:
        self.stats: Stats | None = None
        self.stats_at: float | None = None
        self.event_at: float | None = None
        self.degraded_to = 0


class Model:
    """Every question walks everything; see the module."""

    def __init__(self, *, entries_max: int = 1_000_000, ttl_s: float = 1800.0) -> None:
        self.entries_max = entries_max
        self.ttl_default_s = ttl_s
        self.changed: Callable[[Change], None] | None = None
        self.removals: Counter[tuple[str, str]] = Counter()
        self.tenant_removals: Counter[tuple[str, str]] = Counter()
        self._rules: dict[str, TenantRule] = {}
        self._keys: dict[_Key, dict[str, _Row]] = {}
        self._key_arrival: dict[_Key, int] = {}
        self._credits: dict[_Key, list[float]] = {}
        self._sources: dict[tuple[str, str, str], _Source] = {}
        self._arrivals = 0

    def _rule(self, tenant: str) -> TenantRule:
        return self._rules.get(tenant) or TenantRule(self.ttl_default_s, False, None)

    def ttl_s(self, tenant: str) -> float:
        return self._rule(tenant).ttl_s

    def _live(self, key: _Key, row: _Row, now: float) -> bool:
        return now - row.seen < self.ttl_s(key[0])

    def _source(self, tenant: str, model: str, replica: str) -> _Source:
        return self._sources.setdefault((tenant, model, replica), _Source())

    def _heard(self, tenant: str, model: str, replica: str, now: float) -> None:
        if (tenant, model, replica) in self._sources:
            self._source(tenant, model, replica).event_at = now

    def _tell(self, kind: Kind, replica: str, key: _Key) -> None:
        if self.changed is not None:
            shown = key[4] if len(key[4]) <= 64 else sha256(key[4]).digest()
            self.changed(Change(kind, replica, key[1], key[0], shown, key[3]))

    def _remove(self, key: _Key, replica: str, cause: Cause, *, quiet: bool = False) -> None:
        del self._keys[key][replica]
        if not self._keys[key]:
            del self._keys[key], self._key_arrival[key]
            self._credits.pop(key, None)
        self.removals["lfu" if self._rule(key[0]).lfu else "lru", cause.value] += 1
        self.tenant_removals[key[0], cause.value] += 1
        if not quiet:
            self._tell(Kind.EVICTED, replica, key)

    def govern(self, tenant: str, rule: TenantRule | None) -> None:
        if rule is None:
            self._rules.pop(tenant, None)
        else:
            self._rules[tenant] = rule
        self._keep_quota(tenant)

    def _keep_quota(self, tenant: str) -> None:
        quota = self._rule(tenant).keys_max
        while quota is not None and self.keys(tenant) > max(quota, 0):
            oldest = min((key for key in self._keys if key[0] == tenant), key=lambda key: (self._key_arrival[key], key))
            for replica in sorted(self._keys[oldest]):
                self._remove(oldest, replica, Cause.QUOTA)

    def _keep_cap(self) -> None:
        while self.entries() > self.entries_max:
            _, _, key, replica = min(
                (row.credits if self._rule(key[0]).lfu else 0, row.arrival, key, replica)
                for key, rows in self._keys.items()
                for replica, row in rows.items()
            )
            self._remove(key, replica, Cause.CAP)

    def ingest(self, report: Report, now: float) -> Ingested:
        source = self._source(report.tenant, report.model, report.replica)
        source.event_at = now
        self._arrivals += 1
        limit = min(STAMP_SKEW_MAX_S, self.ttl_s(report.tenant) / 10)
        seen = now + max(-limit, min(limit, report.skew_s))
        admitted = refreshed = refused = 0
        quota = self._rule(report.tenant).keys_max
        told: list[tuple[_Key, int, int]] = []
        for entry in report.entries if report.scheme else ():
            sound = len(entry.hashes) == len(entry.counts)
            if not sound or not all(1 <= len(one) <= IDENTIFIER_BYTES_MAX for one in entry.hashes):
                refused += len(entry.hashes)
                continue
            for one, count in zip(entry.hashes, entry.counts, strict=True):
                told.append(((*report.scope, entry.adapter, one), count, entry.tier))
        for key, count, tier in sorted(told, key=lambda one: one[0]):
            if quota is not None and quota <= 0:
                refused += 1
                continue
            rows = self._keys.setdefault(key, {})
            new = report.replica not in rows
            row = rows.setdefault(report.replica, _Row())
            row.count, row.tier = count, tier_kept(tier)
            row.seen, row.arrival = max(row.seen, seen), self._arrivals
            self._key_arrival[key] = self._arrivals
            admitted, refreshed = admitted + new, refreshed + (not new)
            if new:
                self._tell(Kind.ADDED, report.replica, key)
            self._keep_quota(report.tenant)
            self._keep_cap()
        if report.stats is not None:
            source.stats, source.stats_at = report.stats, now
            self._updated(report.tenant, report.model, report.replica)
        return Ingested(admitted, refreshed, refused)

    def _updated(self, tenant: str, model: str, replica: str) -> None:
        if self.changed is not None:
            self.changed(Change(Kind.UPDATED, replica, model, tenant))

    def _drop(self, keys: list[_Key], replica: str, cause: Cause, *, quiet: bool = False) -> int:
        held = [key for key in keys if replica in self._keys.get(key, ())]
        for key in held:
            self._remove(key, replica, cause, quiet=quiet)
        return len(held)

    def evict(self, tenant: str, model: str, replica: str, hash: bytes, adapter: str | None, now: float) -> int:  # noqa: A002
        self._heard(tenant, model, replica, now)
        keys = [key for key in sorted(self._keys) if key[:2] == (tenant, model) and key[4] == hash]
        return self._drop([key for key in keys if adapter in (None, key[3])], replica, Cause.EVENT)

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: list[bytes], now: float) -> int:
        self._heard(scope.tenant, scope.model, replica, now)
        removed = 0
        for one in hashes:
            keys = [key for key in sorted(self._keys) if key[:3] == scope and key[4] == one]
            removed += self._drop([key for key in keys if adapter in (None, key[3])], replica, Cause.EVENT)
        return removed

    def clear(self, tenant: str, model: str, replica: str, now: float) -> int:
        self._sources.pop((tenant, model, replica), None)
        keys = [key for key in self._keys if key[:2] == (tenant, model)]
        removed = self._drop(keys, replica, Cause.CLEAR, quiet=True)
        if self.changed is not None:
            self.changed(Change(Kind.CLEARED, replica, model, tenant))
        return removed

    def refresh(self, tenant: str, model: str, replica: str, now: float) -> None:
        self._heard(tenant, model, replica, now)

    def degrade(self, tenant: str, model: str, replica: str, now: float) -> None:
        if (tenant, model, replica) in self._sources:
            self._source(tenant, model, replica).degraded_to = self._arrivals

    def heal(self, tenant: str, model: str, replica: str) -> None:
        if (tenant, model, replica) in self._sources:
            self._source(tenant, model, replica).degraded_to = 0

    def sweep(self, now: float, entries_max: int) -> int:
        dead = [
            (key, replica)
            for key, rows in self._keys.items()
            for replica, row in rows.items()
            if not self._live(key, row, now)
        ][:entries_max]
        for key, replica in dead:
            self._remove(key, replica, Cause.TTL)
        for of, source in list(self._sources.items()):
            holds = any(key[:2] == of[:2] and of[2] in rows for key, rows in self._keys.items())
            heard_at = now if source.event_at is None else source.event_at
            if not holds and now - heard_at >= max(SILENT_S_MIN, self.ttl_s(of[0])):
                del self._sources[of]
        return len(dead)

    def chain(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], counts: Sequence[int], now: float
    ) -> list[Held]:
        runs: dict[str, list[_Row]] = {}
        for i, one in enumerate(hashes):
            key = (*scope, adapter, one)
            for replica, row in self._keys.get(key, {}).items():
                if self._live(key, row, now) and len(runs.get(replica, ())) == i:
                    runs.setdefault(replica, []).append(row)
        return [
            self._held(scope, replica, runs[replica], sum(counts[: len(runs[replica])])) for replica in sorted(runs)
        ]

    def _held(self, scope: Scope, replica: str, run: list[_Row], tokens: int) -> Held:
        mark = self._source(scope.tenant, scope.model, replica).degraded_to
        seen = min(row.seen for row in run)
        degraded = any(row.arrival <= mark for row in run)
        return Held(replica, len(run), tokens, seen, max(row.tier for row in run), degraded)

    def exact(self, scope: Scope, adapter: str, hash: bytes, now: float) -> list[Held]:  # noqa: A002
        key = (*scope, adapter, hash)
        rows = self._keys.get(key, {})
        live = sorted(replica for replica in rows if self._live(key, rows[replica], now))
        return [self._held(scope, replica, [rows[replica]], rows[replica].count) for replica in live]

    def replicas(self, scope: Scope, now: float) -> Sequence[str]:
        return sorted({replica for key, replica in self._alive(now) if key[:3] == scope})

    def _alive(self, now: float) -> Iterator[tuple[_Key, str]]:
        for key, rows in self._keys.items():
            yield from ((key, replica) for replica, row in rows.items() if self._live(key, row, now))

    def known(self, tenant: str, model: str, scheme: str, now: float) -> Known:
        scopes = {key[:3] for key, _ in self._alive(now)}
        if (tenant, model, scheme) in scopes:
            return Known.SCOPE
        if any(scope[:2] == (tenant, model) for scope in scopes):
            return Known.OTHER_SCHEMES
        if any(scope[0] == tenant for scope in scopes):
            return Known.OTHER_MODELS
        return Known.OTHER_TENANTS if scopes else Known.NOTHING

    def stats(self, tenant: str, model: str, replica: str) -> tuple[Stats, float] | None:
        source = self._sources.get((tenant, model, replica))
        if source is None or source.stats is None or source.stats_at is None:
            return None
        return source.stats, source.stats_at

    def states(self, tenant: str | None, model: str | None, now: float) -> list[ReplicaState]:
        return [
            ReplicaState(
                tenant=of[0],
                model=of[1],
                replica=of[2],
                stats=source.stats,
                stats_at=source.stats_at,
                event_at=source.event_at,
                keys=sum(key[:2] == of[:2] and of[2] in rows for key, rows in self._keys.items()),
            )
            for of, source in sorted(self._sources.items(), key=lambda item: (item[0][0], item[0][2], item[0][1]))
            if tenant in (None, of[0]) and model in (None, of[1])
        ]

    def credit(self, scope: Scope, adapter: str, hashes: Sequence[bytes], replica: str, now: float) -> None:
        for one in hashes:
            key = (*scope, adapter, one)
            row = self._keys.get(key, {}).get(replica)
            if row is not None:
                row.credits += self._rule(scope.tenant).lfu
                self._credits.setdefault(key, []).append(now)

    def keys(self, tenant: str | None = None, model: str | None = None) -> int:
        return sum(tenant in (None, key[0]) and model in (None, key[1]) for key in self._keys)

    def entries(self) -> int:
        return sum(len(rows) for rows in self._keys.values())

    def hot(self, tenant: str | None = None, model: str | None = None, now: float = 0.0) -> int:
        width = self.ttl_default_s / HOT_SLOTS
        return sum(
            tenant in (None, key[0])
            and model in (None, key[1])
            and len(at) > 1
            and at[-2] // width >= (now - self.ttl_s(key[0])) // width
            for key, at in self._credits.items()
        )


def tier_kept(tier: int) -> int:
    """The tier as it is kept: unset is memory, a stranger is coldest."""
    return tier or Tier.MEMORY if 0 <= tier <= Tier.REMOTE else Tier.UNKNOWN
