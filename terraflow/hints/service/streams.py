"""The two streams that the service sends: changes of the index, and its own metrics.

1. However many readers there are, a change costs the index one place in a ring. Each reader looks through the ring in
   its own time, by turns with everybody else; what is overwritten before it has looked is lost to it, and counted.
2. Only changes from now on are told, and only those of tenants that the caller may see; the probe's never.
3. Metrics are sent at once, then every `METRICS_EVERY_S`. A series that names a tenant or a model is for callers that
   may see that tenant, or one that has keys of that model.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import islice

from terraflow.hints.index.index import Change
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Caller
from terraflow.hints.service.metrics import Metrics, Sample
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT

RING = 16_384
"""Changes that a reader may be behind: some 4 MB, while there are readers."""
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


class Changes:
    """The last changes of the index, for all readers."""

    def __init__(self, live: LiveHints, metrics: Metrics, ring: int = RING) -> None:
        self._live = live
        self._metrics = metrics
        self._size = ring
        self._ring: list[tuple[Change, int] | None] = []
        self._head = 0
        self._readers = 0
        self._asleep: list[asyncio.Future[None]] = []

    def _keep(self, change: Change) -> None:
        self._ring[self._head % self._size] = change, self._live.clock.now()
        self._head += 1
        if self._asleep:
            asleep, self._asleep = self._asleep, []
            for sleeper in asleep:
                if not sleeper.done():
                    sleeper.set_result(None)

    async def read(self, passes: Callable[[Change], bool]) -> AsyncGenerator[pb.CacheEvent, None]:
        """What passes, from now on, until the reader leaves."""
        if self._readers == 0:
            self._ring = [None] * self._size
            self._end = self._live.listen(self._keep)
        self._readers += 1
        at = self._head
        try:
            while True:
                while at < self._head:
                    lost = self._head - self._size - at
                    if lost > 0:
                        self._metrics.stream_drops["events"] += lost
                        at += lost
                    kept = self._ring[at % self._size]
                    at += 1
                    if kept is not None and passes(kept[0]):
                        yield _event(*kept)
                    elif at % LOOKS_A_TURN == 0:
                        await asyncio.sleep(0)
                sleeper = asyncio.get_running_loop().create_future()
                self._asleep.append(sleeper)
                await sleeper
        finally:
            self._readers -= 1
            if self._readers == 0:
                self._end()
                self._ring = []


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
        for sample in samples:
            if may_see(caller, sample, live):
                yield pb.Metric(
                    name=sample.name, type=sample.type, labels=sample.labels, value=sample.value, timestamp_us=at_us
                )
        await live.clock.sleep(METRICS_EVERY_S)


def may_see(caller: Caller, sample: Sample, live: LiveHints) -> bool:
    """Whether the sample is the caller's to know (rule 3)."""
    if caller.every_tenant:
        return True
    tenant, model = sample.labels.get("tenant_id"), sample.labels.get("model")
    if tenant is not None and not caller.sees(tenant):
        return False
    return model is None or any(live.index.keys(own, model) for own in caller.tenants)
