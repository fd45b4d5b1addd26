"""Which replica holds which block, by name: the index that lookups read and reports write.

1. Pure and told the time: seconds of one monotonic clock, that never go back from call to call.
2. An entry past its TTL counts for nothing in `chain`, `exact`, `replicas` and `known` from that instant, swept or not;
   gauges (`keys`, `entries`, `hot`, the keys of `states`) are counted and lose it when it is taken out.
3. An entry's time is its receive time moved by the producer's stamp within bounds, and never goes back. Its place in
   the order of arrival is that of the report; keys of one report follow each other by adapter, then hash.
4. A report is taken in key by key. A key beyond the tenant's quota takes out the tenant's oldest key with all of its
   entries; an entry beyond the cap takes out the entry with the fewest LFU credits (under LRU all have none), then the
   oldest, over all tenants: it may be the new one itself.
5. No call takes longer than what it changes: of a large clear, or of a quota that falls, a part is done at once, the
   rest by later reports and sweeps. What is cleared is not seen from that instant.
6. Tables are bounded beside the cap: 1 024 replicas of a tenant's model; 65 536 sources (replicas of a model), pairs of
   scope and replica, and pairs of scope and adapter; 64 Mi characters of their names; of each no tenant has more than
   an eighth. What a report brings beyond is refused and counted. A source that holds nothing and has long been silent
   is forgotten.
7. A hash longer than 64 bytes is kept as its SHA-256, and changes and snapshots show that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from terraflow.hints.index.places import Holding, Place, ScopeAt, Source, Space, Tenant
from terraflow.hints.index.register import HOT_SLOTS, Register
from terraflow.hints.index.reported import by_adapter
from terraflow.hints.index.said import Cause, Change, Ingested, Kind, Piece, TenantRule
from terraflow.hints.index.snapshot import pieces, put_back
from terraflow.hints.words import STAMP_SKEW_MAX_S, Held, Known, ReplicaState, Report, Scope, Stats

SILENT_S_MIN = 600.0
"""A source that holds nothing is forgotten when it was silent for so long, and for its TTL."""

_AT_ONCE = 2048
_SWEEP_HOLDINGS = 4096
_SWEEP_SOURCES = 1024
_FIRST = [0]


class Index(Register):
    """See the module. `changed`, where it is set, is called with every change; it MUST NOT call the index."""

    def __init__(
        self, *, entries_max: int = 1_000_000, ttl_s: float = 1800.0, keys_per_tenant_max: int | None = None
    ) -> None:
        """`keys_per_tenant_max`: the quota of tenants whose rule has none."""
        super().__init__(entries_max, ttl_s, keys_per_tenant_max)
        self._changed: Callable[[Change], None] | None = None
        self._over: dict[str, Tenant] = {}

    @property
    def changed(self) -> Callable[[Change], None] | None:
        """Who is told of every change; None costs nothing."""
        return self._changed

    @changed.setter
    def changed(self, listener: Callable[[Change], None] | None) -> None:
        self._changed = listener
        self.table.tell = None if listener is None else self._tell

    def _tell(self, kind: str, holding: Holding, space: Space, key: bytes) -> None:
        if self._changed is not None:
            told = Kind.ADDED if kind == "added" else Kind.EVICTED
            place = space.place
            self._changed(Change(told, holding.source.replica, place.model, place.tenant.name, key, space.adapter))

    # What governs

    def ttl_s(self, tenant: str) -> float:
        """The TTL of a tenant's entries."""
        known = self.tenants.get(tenant)
        return self.ttl_default_s if known is None else known.ttl_s

    def govern(self, tenant: str, rule: TenantRule | None) -> None:
        """Put a tenant under a rule; None: under the default."""
        known = self.tenants.get(tenant)
        if known is None:
            if rule is None:
                return
            known = self.tenant(tenant)
        if rule is None:
            self.governed.discard(tenant)
        else:
            self.governed.add(tenant)
        known.ttl_s = self.ttl_default_s if rule is None else rule.ttl_s
        self.ttl_s_most = max(self.ttl_s_most, known.ttl_s)
        known.keys_max = self.keys_max_default if rule is None or rule.keys_max is None else max(0, rule.keys_max)
        lfu = rule is not None and rule.lfu
        if known.lfu != lfu:
            known.lfu = lfu
            for place in known.places.values():
                for scope in place.scopes.values():
                    for holding in scope.holdings.values():
                        self.table.reweigh(holding)
        self._pay(known, _AT_ONCE)
        self.tidy()

    def _pay(self, tenant: Tenant, keys_max: int) -> None:
        self.table.keep_quota(tenant, keys_max)
        if 0 <= tenant.keys_max < tenant.keys:
            self._over[tenant.name] = tenant
        else:
            self._over.pop(tenant.name, None)

    # Writes

    def ingest(self, report: Report, now: float) -> Ingested:
        """Take in a report: its entries, then its statistics. Returns counts of entries."""
        entries = report.entries if report.scheme else ()
        source = self.source(report.tenant, report.model, report.replica)
        if source is None:
            return Ingested(0, 0, sum(len(entry.hashes) for entry in entries))
        source.event_at = source.heard_at = now
        table = self.table
        table.admitted = table.refreshed = 0
        refused = 0
        for adapter, hashes, counts, tiers in by_adapter(entries):
            if not hashes:
                continue
            if tiers is None or not self._take(report, source, adapter, (hashes, counts, tiers), now):
                refused += len(hashes)
        admitted, refreshed = table.admitted, table.refreshed
        if report.stats is not None:
            source.stats, source.stats_at = report.stats, now
            if self._changed is not None:
                self._changed(Change(Kind.UPDATED, report.replica, report.model, report.tenant))
        if table.dead:
            table.purge(16 + 2 * (admitted + refreshed))
        if self._over:
            self._pay(source.place.tenant, 16 + 2 * admitted)
        if table.empty:
            self.tidy()
        return Ingested(admitted, refreshed, refused)

    def _take(
        self,
        report: Report,
        source: Source,
        adapter: str,
        blocks: tuple[list[bytes], list[int], list[int]],
        now: float,
    ) -> bool:
        tenant = source.place.tenant
        if tenant.keys_max == 0:
            return False
        where = self.where(source, report.scheme, adapter)
        if where is None:
            return False
        space, holding = where
        hashes, counts, tiers = blocks
        order = sorted(range(len(hashes)), key=hashes.__getitem__) if len(hashes) > 1 else _FIRST
        seen = now
        if report.skew_s:
            limit = min(STAMP_SKEW_MAX_S, tenant.ttl_s / 10)
            seen += max(-limit, min(limit, report.skew_s))
        self.table.ingest(space, holding, hashes, counts, tiers, order, seen)
        self.told(source.place, now)
        return True

    def evict(self, tenant: str, model: str, replica: str, hash: bytes, adapter: str | None, now: float) -> int:  # noqa: A002
        """Take one hash of a replica out under every scheme; `adapter` None: under every adapter."""
        source = self.heard(tenant, model, replica, now)
        if source is None:
            return 0
        gone = sum(self._evict(holding, adapter, [hash]) for holding in list(source.holdings))
        self.tidy()
        return gone

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: list[bytes], now: float) -> int:
        """Take hashes of a replica out under one scheme; `adapter` None: under every adapter."""
        source = self.heard(scope.tenant, scope.model, replica, now)
        at = None if source is None else source.place.scopes.get(scope.scheme)
        holding = None if at is None else at.holdings.get(replica)
        if holding is None:
            return 0
        gone = self._evict(holding, adapter, hashes)
        self.tidy()
        return gone

    def _evict(self, holding: Holding, adapter: str | None, hashes: list[bytes]) -> int:
        spaces = holding.scope.spaces
        if adapter is not None:
            space = spaces.get(adapter)
            return 0 if space is None else self.table.evict(space, holding, hashes)
        return sum(self.table.evict(space, holding, hashes) for space in list(spaces.values()))

    def clear(self, tenant: str, model: str, replica: str, now: float) -> int:
        """Forget a replica: what it holds and what it said. Returns how many entries it had."""
        source = self.found(tenant, model, replica)
        gone = 0
        if source is not None:
            for holding in source.holdings:
                gone += self.table.bury(holding)
                if holding.size == 0:
                    self.table.empty.append(holding)
                del holding.scope.holdings[replica]
            source.holdings = []
            self.forget(source)
            self.table.purge(_AT_ONCE)
            self.tidy()
        if self._changed is not None:
            self._changed(Change(Kind.CLEARED, replica, model, tenant))
        return gone

    def refresh(self, tenant: str, model: str, replica: str, now: float) -> None:
        """A known replica is alive."""
        self.heard(tenant, model, replica, now)

    def degrade(self, tenant: str, model: str, replica: str, now: float) -> None:
        """What a replica holds up to now counts as degraded, until it is healed or reported again."""
        self._mark(tenant, model, replica, self.table.arrivals)

    def heal(self, tenant: str, model: str, replica: str) -> None:
        """Nothing of a replica is degraded any more."""
        self._mark(tenant, model, replica, -1.0)

    def _mark(self, tenant: str, model: str, replica: str, mark: float) -> None:
        source = self.found(tenant, model, replica)
        if source is not None:
            source.mark = mark
            for holding in source.holdings:
                self.table.marks[holding.number] = mark

    @property
    def owing(self) -> bool:
        """Whether clears and quotas have left work for `sweep`."""
        return bool(self.table.dead or self._over)

    def sweep(self, now: float, entries_max: int) -> int:
        """A bounded step of taking out what is past its TTL, and what earlier calls left to do. Returns how many
        entries went for their age. One that was stamped back may wait for others of its replica, ten seconds at most.
        """
        gone = self.table.sweep(now, entries_max, _SWEEP_HOLDINGS)
        self.table.purge(entries_max - gone)
        for tenant in list(self._over.values())[:16]:
            self._pay(tenant, max(1, entries_max // 16))
        for _ in range(min(_SWEEP_SOURCES, len(self.sources))):
            source = self.turn()
            if source is None or source.holdings:
                continue
            if now - source.heard_at >= max(SILENT_S_MIN, source.place.tenant.ttl_s):
                self.forget(source)
        self.tidy()
        return gone

    def credit(self, scope: Scope, adapter: str, hashes: Sequence[bytes], replica: str, now: float) -> None:
        """One to each of a replica's entries: under LFU towards staying, and towards being hot."""
        space = self.space(scope, adapter)
        holding = None if space is None else space.scope.holdings.get(replica)
        if space is None or holding is None:
            return
        place = space.place
        if len(place.hot) > 8 * HOT_SLOTS:
            place.hot_from = self.slot(now - place.tenant.ttl_s)
            place.hot = {slot: count for slot, count in place.hot.items() if slot >= place.hot_from}
        self.table.credit(space, holding, list(hashes), self.slot(now))

    # Reads

    def chain(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], counts: Sequence[int], now: float
    ) -> list[Held]:
        """Of each replica that holds the first block, the leading run; `counts` is as long as `hashes`. No order."""
        space = self.space(scope, adapter)
        if space is None:
            return []
        if len(counts) < len(hashes):
            raise ValueError("fewer counts than hashes")
        return self.table.chain(
            space,
            hashes if type(hashes) is list else list(hashes),
            counts if type(counts) is list else list(counts),
            now,
        )

    def exact(self, scope: Scope, adapter: str, hash: bytes, now: float) -> list[Held]:  # noqa: A002
        """Each replica that holds one hash, with the count that it reported. No order."""
        space = self.space(scope, adapter)
        return [] if space is None else self.table.chain(space, [hash], [], now, True)

    def replicas(self, scope: Scope, now: float) -> Sequence[str]:
        """Who holds a key of a scope within its TTL, sorted."""
        at = self.scope(scope)
        if at is None:
            return []
        live = self.table.live
        return sorted(replica for replica, holding in at.holdings.items() if live(holding, now))

    def known(self, tenant: str, model: str, scheme: str, now: float) -> Known:
        """How near to a scope there is a key within its TTL."""
        own = self.tenants.get(tenant)
        if own is not None and own.keys:
            place = own.places.get(model)
            if place is not None:
                scope = place.scopes.get(scheme)
                if scope is not None and self._any([scope], now):
                    return Known.SCOPE
                if self._any(place.scopes.values(), now):
                    return Known.OTHER_SCHEMES
            if self._anywhere(own, now):
                return Known.OTHER_MODELS
        past = now - self.ttl_s_most - STAMP_SKEW_MAX_S
        for each in reversed(self.tenants.values()):
            if each.keys:
                if each.told_at <= past:
                    break
                if self._anywhere(each, now):
                    return Known.OTHER_TENANTS
        return Known.NOTHING

    def _anywhere(self, tenant: Tenant, now: float) -> bool:
        """Whether a tenant has a key within its TTL: not past the first place that was last told of one before that."""
        past = now - tenant.ttl_s - STAMP_SKEW_MAX_S
        for place in reversed(tenant.places.values()):
            if place.scopes:
                if place.told_at <= past:
                    return False
                if self._any(place.scopes.values(), now):
                    return True
        return False

    def _any(self, scopes: Iterable[ScopeAt], now: float) -> bool:
        return any(self.table.live(holding, now) for scope in scopes for holding in scope.holdings.values())

    def stats(self, tenant: str, model: str, replica: str) -> tuple[Stats, float] | None:
        """A replica's last statistics and when they came."""
        source = self.found(tenant, model, replica)
        if source is None or source.stats is None or source.stats_at is None:
            return None
        return source.stats, source.stats_at

    def states(self, tenant: str | None, model: str | None, now: float) -> list[ReplicaState]:
        """What is known of replicas, by tenant, replica, model; None: of all."""
        return [
            ReplicaState(
                tenant=place.tenant.name,
                model=place.model,
                replica=source.replica,
                stats=source.stats,
                stats_at=source.stats_at,
                event_at=source.event_at,
                keys=sum(holding.size for holding in source.holdings),
            )
            for place, source in sorted(
                ((place, source) for place in self._places(tenant, model) for source in place.sources.values()),
                key=lambda one: (one[0].tenant.name, one[1].replica, one[0].model),
            )
        ]

    def _places(self, tenant: str | None, model: str | None) -> Iterator[Place]:
        own = None if tenant is None else self.tenants.get(tenant)
        tenants = self.tenants.values() if tenant is None else [own] if own is not None else []
        for each in tenants:
            if model is None:
                yield from each.places.values()
            elif (place := each.places.get(model)) is not None:
                yield place

    # Gauges

    def keys(self, tenant: str | None = None, model: str | None = None) -> int:
        """Distinct keys."""
        if tenant is None and model is None:
            return self.table.keys
        return sum(place.keys for place in self._places(tenant, model))

    def entries(self) -> int:
        """Entries, replica × key."""
        return self.table.entries - self.table.waiting

    def keys_by_model(self) -> dict[str, int]:
        """Distinct keys of every model that has a replica or a key, in one walk over them."""
        counted: dict[str, int] = {}
        for place in self._places(None, None):
            counted[place.model] = counted.get(place.model, 0) + place.keys
        return counted

    def hot(self, tenant: str | None = None, model: str | None = None, now: float = 0.0) -> int:
        """Keys credited more than once within the last TTL, to a 64th of the service's TTL."""
        hot = 0
        for place in self._places(tenant, model):
            since = self.slot(now - place.tenant.ttl_s)
            hot += sum(count for slot, count in place.hot.items() if slot >= since)
        return hot

    @property
    def removals(self) -> dict[tuple[str, str], int]:
        """Entries that left, by (lru or lfu, cause)."""
        lru, lfu = self.table.removed
        return {
            (name, cause.value): count
            for name, counts in (("lru", lru), ("lfu", lfu))
            for cause, count in zip(Cause, counts, strict=True)
            if count
        }

    @property
    def tenant_removals(self) -> dict[tuple[str, str], int]:
        """Entries that left, by (tenant, cause)."""
        return {
            (tenant.name, cause.value): count
            for tenant in self.tenants.values()
            for cause, count in zip(Cause, tenant.removed, strict=True)
            if count
        }

    # Snapshots

    def dump(self, now: float) -> Iterator[Piece]:
        """Everything, in pieces of some hundred keys; other calls may come between two of them, another dump not."""
        return pieces(self, now)

    def restore(self, piece: Piece, now: float) -> None:
        """Put a piece back, as old as it was when it was dumped; what was reported meanwhile stays as it is."""
        put_back(self, piece, now)
        self.tidy()
