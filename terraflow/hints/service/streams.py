"""The two streams that the service sends: changes of the index, and its own metrics.

1. A listener costs the index one test and one append a change. A reader that is too slow loses changes: they are
   counted, and never wait.
2. Only changes from now on are told, and only those of tenants that the caller may see; the probe's never.
3. Metrics are sent at once, then every `METRICS_EVERY_S`. A series that names a tenant or a model is for callers that
   may see that tenant, or one that has keys of that model.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice

from terraflow.hints.index.index import Change
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Caller
from terraflow.hints.service.metrics import Metrics, Sample
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT

QUEUE_MAX = 8_192
"""Changes that wait for one reader: some 2 MB, and a few reports of a busy replica."""
BATCH = 256
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


async def cache_events(
    request: pb.StreamEventsRequest, caller: Caller, live: LiveHints, metrics: Metrics, queue_max: int = QUEUE_MAX
) -> AsyncGenerator[pb.CacheEvent, None]:
    """Changes of the index from now on, until the reader leaves."""
    waiting: deque[tuple[Change, int]] = deque()
    came = asyncio.Event()
    passes = wanted(request, caller)

    def on_change(change: Change) -> None:
        if not passes(change):
            return
        if len(waiting) >= queue_max:
            metrics.stream_drops["events"] += 1
            return
        waiting.append((change, live.clock.now()))
        if len(waiting) == 1:
            came.set()

    end = live.listen(on_change)
    try:
        while True:
            await came.wait()
            came.clear()
            while waiting:
                for change, at in [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]:
                    yield _event(change, at)
    finally:
        end()


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
