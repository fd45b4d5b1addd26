"""The prefill and the decode replica of a disaggregated model, for LookupPDRoute.

1. A replica belongs to a pool when its labels contain the pool's; one without labels belongs to pools that ask for
   none.
2. Who holds the prefix is asked exactly, by `prefix_hash`, under the topology's hash scheme and adapter. A request
   of this kind has no chain: `requireChain` does not concern it, and no miss becomes TENANT_HOT.
3. A match is judged as in a lookup: `minimumMatchedTokens`, and in the prefill pool `routingFloorScore` too. The score
   is the lookup's without its factor for what distinguishes replicas: that a whole pool holds a prefix is no reason to
   take a replica that does not.
4. Prefill is the pool's best score. Decode is the pool's replica that holds the prefix (of several the least loaded,
   one whose source is lost last), else the least loaded of the pool. Load is the last reported pressure within the TTL,
   then what is in flight; who has reported none counts as idle.
5. When the decode replica holds the whole prefix and its source is not lost, no remote prefill is needed: both ids are
   its own.
6. PREFIX_MATCH when a match decided either; AFFINITY_HINT when none did. UNKNOWN_* beats affinity, as in a lookup.
7. Ties are broken by the prefix: `sorted(tied)[BE u64(sha256(prefix_hash)[:8]) % n]`, so that one prefix stays
   together and different ones spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.deciding.rank import Weighing, score_matches
from terraflow.hints.deciding.with_index import UNKNOWN, above_floors, contracted
from terraflow.hints.policy.policies import Pool, Topology
from terraflow.hints.words import IDENTIFIER_BYTES_MAX, PROBE_TENANT, Held, Known, Scope, Stats, longer

Labels = Mapping[str, Mapping[str, str]]
"""Labels of replicas, by id."""


class PDQuery(msgspec.Struct, kw_only=True):
    """A LookupPDRouteRequest. `foreign`: the tenant is not one of the caller's."""

    topology: str
    """`namespace/name`."""
    tenant: str
    model: str
    prefix_hash: bytes = b""
    prefix_token_count: int = 0
    foreign: bool = False


class PDRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A LookupPDRouteResponse. Empty ids where there is no hint.

    `cause` says why there is none, for a counter, from a closed vocabulary: "", "reserved_tenant", "foreign_tenant",
    "deadline", "unknown_topology", "no_scheme", "no_keys", "no_prefix", "too_large", "no_prefill_replica",
    "no_decode_replica", "empty_index", "unknown_keys", "affinity_off". `held` are the replicas whose match decided:
    they are credited under LFU.
    """

    reason: Lookup
    prefill: str = ""
    decode: str = ""
    transport: str = ""
    cause: str = ""
    held: tuple[str, ...] = ()


def decide_pd_route(
    query: PDQuery,
    grounds: Grounds,
    labels: Labels,
    now: float,
    expired: Callable[[], bool],
) -> PDRoute:
    """The route at `now`, monotonic seconds; `expired` tells whether the deadline has passed. Changes nothing."""
    refused = _unanswerable(query)
    if refused is not None:
        return refused
    if expired():
        return _LATE
    topology = grounds.policies.topologies.get(query.topology)
    if topology is None:
        return _no_hint("unknown_topology")
    look = _Look(query, topology, grounds, labels, now)
    route = look.route()
    return _LATE if expired() else route


def members(pools: Iterable[Pool], labels: Labels) -> list[str]:
    """The replicas of pools, sorted: those whose labels contain a pool's."""
    wanted = [pool.match_labels.items() for pool in pools]
    return sorted(replica for replica, own in labels.items() if any(want <= own.items() for want in wanted))


def _no_hint(cause: str, reason: Lookup = Lookup.NO_HINT) -> PDRoute:
    return PDRoute(reason=reason, cause=cause)


_LATE = _no_hint("deadline", Lookup.TIMEOUT)


def _unanswerable(query: PDQuery) -> PDRoute | None:
    """What can be said without looking anywhere."""
    if query.tenant == PROBE_TENANT:
        return _no_hint("reserved_tenant")
    if query.foreign:
        return _no_hint("foreign_tenant")
    names = query.tenant, query.model, query.topology
    if len(query.prefix_hash) > IDENTIFIER_BYTES_MAX or any(longer(name, IDENTIFIER_BYTES_MAX) for name in names):
        return _no_hint("too_large")
    if not (query.tenant and query.model):
        return _no_hint("no_keys")
    return None if query.prefix_hash else _no_hint("no_prefix")


class _Look:
    """One lookup under way."""

    def __init__(
        self,
        query: PDQuery,
        topology: Topology,
        grounds: Grounds,
        labels: Labels,
        now: float,
    ) -> None:
        self._query = query
        self._topology = topology
        self._index = index = grounds.index
        self._policy = grounds.policies.policy(query.tenant)
        self._labels = labels
        self._ranker = grounds.ranker
        self._now = now
        self._assigned = grounds.assigned
        self._scope = Scope(query.tenant, query.model, topology.hash_scheme)
        self._ttl_s = index.ttl_s(query.tenant)

    def route(self) -> PDRoute:
        """Pools first, then who holds the prefix, then what is known, then load."""
        query, policy = self._query, self._policy
        if not self._scope.scheme:
            return _no_hint("no_scheme")
        prefill = members(self._topology.prefill_pools, self._labels)
        decode = members(self._topology.decode_pools, self._labels)
        if not prefill or not decode:
            return _no_hint("no_decode_replica" if prefill else "no_prefill_replica")
        short = query.prefix_token_count < policy.minimum_prefix_tokens
        if short and not policy.affinity:
            return _no_hint("affinity_off")
        held = [] if short else self._index.exact(self._scope, self._topology.adapter, query.prefix_hash, self._now)
        holders = {row.replica: row for row in held if row.tokens >= max(policy.minimum_matched_tokens, 1)}
        holding = [replica for replica in decode if replica in holders]
        sound = [replica for replica in holding if not holders[replica].degraded]
        decoder = self._least_loaded(sound or holding)
        if decoder and self._holds_all(holders[decoder]):
            return self._hint(Lookup.PREFIX_MATCH, decoder, decoder, (decoder,))
        best = self._best([row for row in held if row.replica in prefill])
        if best or decoder:
            found = tuple(dict.fromkeys(filter(None, (best, decoder))))
            chosen = best or self._least_loaded(prefill), decoder or self._least_loaded(decode)
            return self._hint(Lookup.PREFIX_MATCH, *chosen, found)
        unknown = self._unknown()
        if unknown is not None:
            return unknown
        if not policy.affinity:
            return _no_hint("affinity_off")
        return self._hint(Lookup.AFFINITY_HINT, self._least_loaded(prefill), self._least_loaded(decode))

    def _hint(self, reason: Lookup, prefill: str, decode: str, held: tuple[str, ...] = ()) -> PDRoute:
        return PDRoute(reason=reason, prefill=prefill, decode=decode, transport=self._topology.transport, held=held)

    def _best(self, held: Sequence[Held]) -> str:
        """The best score among them, or "" when the floors leave none."""
        candidates = score_matches(held, 1, Weighing(self._ttl_s, 0, self._stats, self._ranker, self._now))
        rows = above_floors(candidates.ranked(), self._policy)
        return self._least_loaded([row.replica for row in rows if row.score == rows[0].score])

    def _holds_all(self, held: Held) -> bool:
        return not held.degraded and held.tokens >= self._query.prefix_token_count

    def _unknown(self) -> PDRoute | None:
        query, scope = self._query, self._scope
        known = self._index.known(query.tenant, query.model, scope.scheme, self._now)
        if known is Known.SCOPE:
            return None
        return _no_hint("empty_index" if known is Known.NOTHING else "unknown_keys", UNKNOWN[known][0])

    def _stats(self, replica: str) -> tuple[Stats, float] | None:
        return self._index.stats(self._query.tenant, self._query.model, replica)

    def _load(self, replica: str) -> tuple[float, int]:
        known = self._stats(replica)
        current = known is not None and known[1] > self._now - self._ttl_s
        pressure = known[0].pressure if known is not None and current else 0.0
        return pressure, self._assigned.in_flight(self._scope, replica) if self._assigned is not None else 0

    def _least_loaded(self, replicas: Sequence[str]) -> str:
        if not replicas:
            return ""
        loads = {replica: self._load(replica) for replica in replicas}
        least = min(loads.values())
        tied = sorted(replica for replica in replicas if loads[replica] == least)
        return contracted(tied, self._query.prefix_hash)
