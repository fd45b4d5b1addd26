"""What producers say: reports of what replicas hold, and events.

1. A producer is held to its tenants and replicas with every message, and asked for its identity as often.
2. The probe's tenant is the service's own: what strangers say of it is acknowledged and dropped.
3. One piece of a report is taken in, whoever sent it, and then all others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from terraflow.hints.http2.call import Call
from terraflow.hints.live import LiveHints
from terraflow.hints.service.access import Access
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.parse import parse_reports
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT, Report


class Writes:
    """PublishEvent and ReportCacheState over the live hints."""

    def __init__(self, live: LiveHints, metrics: Metrics, access: Access) -> None:
        self._live = live
        self._metrics = metrics
        self._access = access
        self._turn = asyncio.Lock()

    async def publish_event(self, event: pb.CacheEvent, call: Call) -> pb.Ack:
        """One change of one replica's cache."""
        self._access.admit(self._access.producer(call), event.tenant_id, event.replica_id)
        if event.tenant_id != PROBE_TENANT:
            self._apply(event)
        return pb.Ack(accepted=True)

    def _apply(self, event: pb.CacheEvent) -> None:
        tenant, model, replica = event.tenant_id, event.model_id, event.replica_id
        if not (tenant and model and replica):
            self._metrics.dropped["incomplete"] += 1
            return
        kind = event.type
        if kind == pb.CacheEvent.PREFIX_EVICTED:
            if event.prefix_hash:
                self._live.evict(tenant, model, replica, event.prefix_hash, event.adapter_id or None)
        elif kind == pb.CacheEvent.ALL_CLEARED:
            self._live.clear(tenant, model, replica)
        elif kind == pb.CacheEvent.REPLICA_UPDATED:
            self._live.refresh(tenant, model, replica)
        elif kind != pb.CacheEvent.PREFIX_ADDED:
            self._metrics.events["unknown"] += 1
            return
        self._metrics.events[pb.CacheEvent.Type.Name(kind)] += 1

    async def report_cache_state(self, updates: AsyncIterator[pb.CacheStateUpdate], call: Call) -> pb.Ack:
        """What replicas hold and how they are; acknowledged once the producer has closed its side."""
        metrics, access = self._metrics, self._access
        access.producer(call)
        with access.open_stream("reports"):
            async for update in updates:
                # Asked again with each: a token may expire while its stream is open.
                access.admit(access.producer(call), update.tenant_id, update.replica_id)
                if update.tenant_id == PROBE_TENANT:
                    metrics.dropped["probe_tenant"] += 1
                    continue
                reports = parse_reports(update, self._live.clock.now(), metrics.dropped)
                while await self._ingest_piece(reports):
                    pass
        return pb.Ack(accepted=True)

    async def _ingest_piece(self, reports: Iterator[Report]) -> bool:
        """Take in the next piece, if there is one, in a turn of its own."""
        async with self._turn:
            report = next(reports, None)
            if report is None:
                return False
            self._live.ingest(report)
            await asyncio.sleep(0)
        return True
