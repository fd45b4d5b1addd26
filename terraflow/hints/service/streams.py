"""The two streams that the service sends: changes of the index, and its own metrics.

1. However many readers there are, a change costs the index one place in a ring, and one in a count by kind, tenant and
   model, which is all that filters look at. Each reader looks through the ring in its own time, by turns with everybody
   else. What is overwritten before it has looked is lost to it; how much of that it would have had, the counts tell.
2. Only changes from now on are told, and only those of tenants that the caller may see; the probe's never.
3. Metrics are sent at once, then every `METRICS_EVERY_S`. A series that names a tenant or a model is for callers that
   may see that tenant; one that names a model alone, for those that may see every tenant with keys of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from itertools import islice

from terraflow.hints.index.said import Change, Kind
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Caller
from terraflow.hints.service.metrics import Metrics, Sample
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT

RING = 16_384
"""Changes that a reader may be behind: some 4 MB, while there are readers."""
COUNTS_MAX = 1_024
"""Then they are put down to each reader's account, and begin anew."""
LOOKS_A_TURN = 256
METRICS_EVERY_S = 10.0

_TYPES: dict[str, pb.CacheEvent.Type] = {
    "added": pb.CacheEvent.PREFIX_ADDED,
    "evicted": pb.CacheEvent.PREFIX_EVICTED,
    "updated": pb.CacheEvent.REPLICA_UPDATED,
    "cleared": pb.CacheEvent.ALL_CLEARED,
}


def wanted(request: pb.StreamEventsRequest, caller: Caller) -> Callable[[Change], bool]:
    """What passes the request's filters and may be seen by the caller."""
    tenant, model = request.tenant_id, request.model_id
    types = frozenset(request.types)
    kinds = frozenset(kind for kind, type_ in _TYPES.items() if not types or type_ in types)

    def passes(change: Change) -> bool:
        return (
            change.kind in kinds
            and (not tenant or change.tenant == tenant)
            and (not model or change.model == model)
            and change.tenant != PROBE_TENANT
            and caller.sees(change.tenant)
        )

    return passes


class _Reader:
    """Where one reader is, and its account: of what passed its filter, it has `seen` what is not `settled`."""

    __slots__ = ("at", "lost", "passes", "seen", "settled")

    def __init__(self, passes: Callable[[Change], bool], at: int, settled: int) -> None:
        self.passes = passes
        self.at = at
        self.settled = settled
        self.seen = 0
        self.lost = 0
        """Changes of all kinds that it has missed since it was last settled."""


class Changes:
    """The last changes of the index, for all readers."""

    def __init__(self, live: LiveHints, metrics: Metrics, ring: int = RING) -> None:
        self._live = live
        self._metrics = metrics
        self._size = ring
        self._ring: list[tuple[Change, int] | None] = []
        self._head = 0
        self._counts: dict[tuple[Kind, str, str], int] = {}
        self._readers: set[_Reader] = set()
        self._asleep: list[asyncio.Future[None]] = []

    def _keep(self, change: Change) -> None:
        self._ring[self._head % self._size] = change, self._live.clock.now()
        self._head += 1
        kind = change.kind, change.tenant, change.model
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if len(self._counts) > COUNTS_MAX:
            for reader in self._readers:
                reader.settled -= self._counted(reader.passes)
            self._counts.clear()
        if self._asleep:
            asleep, self._asleep = self._asleep, []
            for sleeper in asleep:
                if not sleeper.done():
                    sleeper.set_result(None)

    async def read(self, passes: Callable[[Change], bool]) -> AsyncGenerator[pb.CacheEvent, None]:
        """What passes, from now on, until the reader leaves."""
        if not self._readers:
            self._ring = [None] * self._size
            self._end = self._live.listen(self._keep)
        reader = _Reader(passes, self._head, self._counted(passes))
        self._readers.add(reader)
        try:
            while True:
                while reader.at < self._head:
                    self._skip_lost(reader)
                    kept = self._ring[reader.at % self._size]
                    reader.at += 1
                    if kept is not None and passes(kept[0]):
                        reader.seen += 1
                        yield _event(*kept)
                    elif reader.at % LOOKS_A_TURN == 0:
                        await asyncio.sleep(0)
                self._settle(reader)
                sleeper = asyncio.get_running_loop().create_future()
                self._asleep.append(sleeper)
                await sleeper
        finally:
            self._skip_lost(reader)
            self._settle(reader)
            self._readers.remove(reader)
            if not self._readers:
                self._end()
                self._ring = []
                self._counts.clear()

    def _skip_lost(self, reader: _Reader) -> None:
        lost = self._head - self._size - reader.at
        if lost > 0:
            reader.at += lost
            reader.lost += lost
            if reader.lost >= self._size:
                self._settle(reader)

    def _settle(self, reader: _Reader) -> None:
        """Count what of the changes that a reader has missed would have passed: all that did but for what it has seen
        and what it still finds in the ring."""
        if not reader.lost:
            return
        waiting = (self._ring[at % self._size] for at in range(reader.at, self._head))
        had = self._counted(reader.passes) - sum(kept is not None and reader.passes(kept[0]) for kept in waiting)
        self._metrics.stream_drops["events"] += had - reader.settled - reader.seen
        reader.settled, reader.seen, reader.lost = had, 0, 0

    def _counted(self, passes: Callable[[Change], bool]) -> int:
        return sum(
            count for (kind, tenant, model), count in self._counts.items() if passes(Change(kind, "", model, tenant))
        )


def _event(change: Change, at_us: int) -> pb.CacheEvent:
    return pb.CacheEvent(
        type=_TYPES[change.kind],
        replica_id=change.replica,
        model_id=change.model,
        tenant_id=change.tenant,
        prefix_hash=change.hash,
        timestamp_us=at_us,
        adapter_id=change.adapter,
    )


async def metrics_now_and_then(
    request: pb.StreamMetricsRequest, caller: Caller, live: LiveHints, metrics: Metrics
) -> AsyncGenerator[pb.Metric, None]:
    """The metrics that were asked for, again and again until the reader leaves."""
    names = frozenset(islice(request.names, 1_024))
    while True:
        samples = await metrics.series(names)
        at_us = live.clock.now()
        keys = {} if caller.every_tenant else live.index.keys_by_model()
        for sample in samples:
            if may_see(caller, sample, live, keys):
                yield pb.Metric(
                    name=sample.name, type=sample.type, labels=sample.labels, value=sample.value, timestamp_us=at_us
                )
        await live.clock.sleep(METRICS_EVERY_S)


def may_see(caller: Caller, sample: Sample, live: LiveHints, keys: Mapping[str, int]) -> bool:
    """Whether the sample is the caller's to know (rule 3); `keys` are everybody's by model."""
    if caller.every_tenant:
        return True
    tenant, model = sample.labels.get("tenant_id"), sample.labels.get("model")
    if tenant is not None and not caller.sees(tenant):
        return False
    if model is None:
        return True
    own = sum(live.index.keys(name, model) for name in caller.tenants)
    # Of a model that others have, too, a number without a tenant is theirs as well.
    return own > 0 and (tenant is not None or keys.get(model) == own)
