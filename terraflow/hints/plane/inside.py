"""The port of `ports.hints` over hints that live in this process: no wire, no wait.

1. A lookup costs what the index costs; its deadline is looked at between its steps.
2. What the plane alone can know of a scheme that no engine reports, it reports here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from terraflow.hints.deciding.question import Query
from terraflow.hints.live import LiveHints
from terraflow.hints.words import PRESSURE_AGE_MAX_S, Entry, Report, Scope, Tier
from terraflow.ports.hints import Hint, Prefix, Ranked

PRESSURE_KEPT_S = 0.25
"""How long one reading of all replicas' pressure serves."""


class InsideHints:
    """A `ReplicaHints` over LiveHints."""

    def __init__(self, live: LiveHints) -> None:
        self._live = live
        self._pressure: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        """See the port."""
        live = self._live
        answer = live.lookup(query_of(prefix), live.clock.monotonic() + timeout_s)
        return Hint(
            reason=answer.reason,
            ranked=tuple([Ranked(one.replica, one.score, one.matched_tokens) for one in answer.scored]),
        )

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        """See the port."""
        now = self._live.clock.monotonic()
        until, told = self._pressure.get((tenant, model), (0.0, {}))
        if now >= until:
            told = {
                state.replica: state.stats.pressure
                for state in self._live.index.states(tenant, model, now)
                if state.stats is not None and state.stats_at is not None and now - state.stats_at <= PRESSURE_AGE_MAX_S
            }
            self._pressure[tenant, model] = (now + PRESSURE_KEPT_S, told)
        return told

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        """See the port."""
        if not replicas:
            self._pressure.pop((tenant, model), None)
        if self._live.grounds.assigned is not None:
            self._live.grounds.assigned.join(Scope(tenant, model, scheme), replicas)

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        """See the port."""
        live = self._live
        if live.grounds.assigned is not None:
            scope = Scope(prefix.tenant, prefix.model, prefix.scheme)
            fresh = prefix.tokens - matched_tokens
            live.grounds.assigned.sent(scope, prefix.adapter, replica, prefix.hashes, fresh, live.clock.monotonic())

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        """See the port."""
        live = self._live
        if live.grounds.assigned is not None:
            scope = Scope(prefix.tenant, prefix.model, prefix.scheme)
            live.grounds.assigned.ended(scope, prefix.adapter, replica, prefix.hashes, held, live.clock.monotonic())
        if held and prefix.unreported and prefix.hashes:
            live.ingest(report_of(prefix, replica))

    def lost(self, prefix: Prefix, replica: str) -> None:
        """See the port."""
        live = self._live
        live.clear(prefix.tenant, prefix.model, replica)
        if live.grounds.assigned is not None:
            live.grounds.assigned.lost(prefix.tenant, prefix.model, replica)

    async def close(self) -> None:
        """See the port; who opened the hints closes them."""


def query_of(prefix: Prefix) -> Query:
    """The lookup of a prefix."""
    return Query(
        tenant=prefix.tenant,
        model=prefix.model,
        scheme=prefix.scheme,
        adapter=prefix.adapter,
        block_hashes=prefix.hashes,
        block_token_counts=prefix.counts,
    )


def report_of(prefix: Prefix, replica: str) -> Report:
    """That a replica holds a prefix's blocks."""
    entry = Entry(prefix.adapter, list(prefix.hashes), list(accumulate(prefix.counts)), Tier.MEMORY)
    return Report(replica=replica, model=prefix.model, tenant=prefix.tenant, scheme=prefix.scheme, entries=(entry,))
