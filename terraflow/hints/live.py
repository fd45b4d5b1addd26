"""The hints that are live in one process: what the RPCs, the feeds, the probe and the plane's own client share.

1. Here, and nowhere below, the clock is read: the index, the ranking and the lookup are told the time.
2. Everything runs on one thread, the loop's; no method waits.
3. A lookup never raises: the tighter deadline of the caller and of the tenant's policy decides, and what fails is
   logged, counted and answered NO_HINT.
4. Nobody listening to changes costs the index nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.disagg import PDQuery, PDRoute, decide_pd_route
from terraflow.hints.deciding.look import Grounds, never
from terraflow.hints.deciding.lookup import Answer, decide_lookup
from terraflow.hints.deciding.question import Query, Tokenizers
from terraflow.hints.index.said import Change, Ingested, TenantRule
from terraflow.hints.policy.policies import Eviction, Policies
from terraflow.hints.words import Report, Scope, Stats
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.hints")

SWEEP_ENTRIES = 1_000
"""A step of the sweep: about a millisecond of it."""

FAULTS_LOGGED = 100
"""Then a fault that every lookup meets is only counted."""


class LiveHints:
    """What lookups are decided on, and the clock."""

    def __init__(self, grounds: Grounds, clock: Clock) -> None:
        self.grounds = grounds
        self.index = grounds.index
        self.clock = clock
        self.faults = 0
        """Lookups that failed."""
        self.admitted = self.refreshed = self.refused = 0
        """Entries by what ingest did with them, whoever reported."""
        self._registered: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self.adopt(grounds.policies)

    # Reads

    def lookup(self, query: Query, deadline: float | None = None, tokenizer: Tokenizers | None = None) -> Answer:
        """The answer to a query; `deadline` is an instant of the monotonic clock. Never raises.

        `tokenizer` stands in for the service's own, for who has put the text through that already.
        """
        now = self.clock.monotonic()
        expired = self._expired(self.deadline(query.tenant, now, deadline))
        grounds = self.grounds if tokenizer is None else replace(self.grounds, tokenizers=tokenizer)
        try:
            return decide_lookup(query, grounds, now, expired)
        except Exception as error:
            self._failed(error)
            return Answer(reason=Lookup.NO_HINT, scored=[], token_ids=(), adapter=query.adapter)

    def pd_route(self, query: PDQuery, deadline: float | None = None) -> PDRoute:
        """The prefill and the decode replica; `deadline` as for `lookup`. Never raises."""
        now = self.clock.monotonic()
        expired = self._expired(self.deadline(query.tenant, now, deadline))
        grounds = self.grounds
        try:
            route = decide_pd_route(query, grounds, self.labels(query.tenant, query.model), now, expired)
        except Exception as error:
            self._failed(error)
            return PDRoute(reason=Lookup.NO_HINT, cause="fault")
        if route.held and grounds.policies.policy(query.tenant).eviction is Eviction.LFU:
            topology = grounds.policies.topologies[query.topology]
            scope = Scope(query.tenant, query.model, topology.hash_scheme)
            for replica in route.held:
                self.index.credit(scope, topology.adapter, (query.prefix_hash,), replica, now)
        return route

    def deadline(self, tenant: str, begun: float, deadline: float | None) -> float | None:
        """The tighter of the caller's deadline and the policy's, which counts from `begun`; None for neither."""
        timeout_ms = self.grounds.policies.policy(tenant).lookup_timeout_ms
        if timeout_ms <= 0:
            return deadline
        own = begun + timeout_ms / 1000
        return own if deadline is None or own < deadline else deadline

    def _expired(self, deadline: float | None) -> Callable[[], bool]:
        """What tells whether it has passed."""
        if deadline is None:
            return never
        until, monotonic = deadline, self.clock.monotonic
        return lambda: monotonic() >= until

    def _failed(self, error: Exception) -> None:
        self.faults += 1
        if self.faults <= FAULTS_LOGGED:
            log.error("a lookup failed and was answered without a hint: %s", type(error).__name__, exc_info=error)

    def labels(self, tenant: str, model: str) -> Mapping[str, Mapping[str, str]]:
        """The labels of replicas by id: those of `replicas.yaml`, then what feeds and fleets of the tenant's model
        registered: nobody is routed to the engines of others."""
        registered = self._registered.get((tenant, model))
        if not registered:
            return self.grounds.policies.labels
        both = dict(self.grounds.policies.labels)
        for replica, labels in registered.items():
            both[replica] = {**both.get(replica, {}), **labels}
        return both

    # Writes: what feeds and producers say

    def ingest(self, report: Report) -> Ingested:
        """Take in a report: its entries and its statistics."""
        ingested = self.index.ingest(report, self.clock.monotonic())
        self.admitted += ingested.admitted
        self.refreshed += ingested.refreshed
        self.refused += ingested.refused
        return ingested

    def stats(self, tenant: str, model: str, replica: str, stats: Stats) -> None:
        """Take in statistics alone."""
        self.ingest(Report(replica=replica, model=model, tenant=tenant, scheme="", stats=stats))

    def evict(self, tenant: str, model: str, replica: str, hash: bytes, adapter: str | None) -> int:  # noqa: A002
        """Remove one hash under every scheme; adapter None: under every adapter. Returns the entries removed."""
        return self.index.evict(tenant, model, replica, hash, adapter, self.clock.monotonic())

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: Sequence[bytes]) -> int:
        """Remove hashes of one scheme. Returns the entries removed."""
        return self.index.evict_many(scope, replica, adapter, list(hashes), self.clock.monotonic())

    def clear(self, tenant: str, model: str, replica: str) -> int:
        """Remove everything of a replica and its statistics. Returns the entries removed."""
        return self.index.clear(tenant, model, replica, self.clock.monotonic())

    def refresh(self, tenant: str, model: str, replica: str) -> None:
        """The replica is alive."""
        self.index.refresh(tenant, model, replica, self.clock.monotonic())

    def degrade(self, tenant: str, model: str, replica: str) -> None:
        """What the replica holds up to now counts for less from here on."""
        self.index.degrade(tenant, model, replica, self.clock.monotonic())

    def heal(self, tenant: str, model: str, replica: str) -> None:
        """What the replica holds counts in full again."""
        self.index.heal(tenant, model, replica)

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None:
        """The labels by which topologies find a replica; empty ones take them back."""
        if labels:
            self._registered.setdefault((tenant, model), {})[replica] = dict(labels)
        else:
            self._registered.get((tenant, model), {}).pop(replica, None)

    def sweep(self) -> bool:
        """A bounded step of removing what is past its TTL, or was cleared. Returns whether to go on at once."""
        gone = self.index.sweep(self.clock.monotonic(), SWEEP_ENTRIES)
        return gone > 0 or self.index.owing

    # What governs

    def adopt(self, policies: Policies) -> None:
        """Put policies in force, as a whole."""
        before = set(self.grounds.policies.cache) | set(self.grounds.policies.quotas)
        self.grounds.policies = policies
        for tenant in before | set(policies.cache) | set(policies.quotas):
            self.index.govern(tenant, self._rule(tenant))

    def _rule(self, tenant: str) -> TenantRule | None:
        policy = self.grounds.policies.cache.get(tenant)
        quota = self.grounds.policies.quotas.get(tenant)
        if policy is None and quota is None:
            return None
        ttl_s = self.index.ttl_default_s if policy is None or policy.ttl_s is None else policy.ttl_s
        return TenantRule(ttl_s=ttl_s, lfu=policy is not None and policy.eviction is Eviction.LFU, keys_max=quota)

    # Who listens

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` with every change of the index; it must be quick, and one that raises is told no more.

        Returns what ends it.
        """
        self._listeners.append(listener)
        self.index.changed = self._tell

        return lambda: self._end(listener)

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception as error:
                log.error("who listens to the index failed, and is told no more", exc_info=error)
                self._end(listener)

    def _end(self, listener: Callable[[Change], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners:
            self.index.changed = None
