"""A server of the public contract that only keeps what it is told, on grpcio."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from terraflow.hints.wire import inferencecache_pb2 as pb
from tests.harness.ports import kept_port
from tests.hints.wire.serving import handler


class Told:
    """What each replica is said to hold: (adapter, hash) → (tokens up to its end, tier)."""

    def __init__(self) -> None:
        self.held: dict[str, dict[tuple[str, bytes], tuple[int, int]]] = {}
        self.stats: dict[str, pb.ReplicaStats] = {}
        self.order: list[str] = []
        self.greeted = 0
        self.metadata: set[tuple[str, str]] = set()
        self.server = grpc.aio.server()
        self.port = 0

    async def start(self, port: int | None = None) -> "Told":
        self.server.add_generic_rpc_handlers((handler(self),))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port or kept_port()}")
        await self.server.start()
        return self

    async def stop(self) -> None:
        await self.server.stop(None)

    async def ReportCacheState(
        self, updates: AsyncIterator[pb.CacheStateUpdate], context: grpc.aio.ServicerContext
    ) -> pb.Ack:
        self.metadata.update(context.invocation_metadata() or ())
        self.order.append("report")
        async for update in updates:
            await asyncio.sleep(0)
            held = self.held.setdefault(update.replica_id, {})
            for prefix in update.prefixes:
                tokens = 0
                for prefix_hash, count in zip(prefix.block_hashes, prefix.block_token_counts, strict=True):
                    tokens += count
                    held[prefix.adapter_id, prefix_hash] = (tokens, prefix.tier)
                if prefix.prefix_hash:
                    held[prefix.adapter_id, prefix.prefix_hash] = (prefix.token_count, prefix.tier)
            if update.HasField("stats"):
                self.stats[update.replica_id] = update.stats
        return pb.Ack(accepted=True)

    async def PublishEvent(self, event: pb.CacheEvent, context: grpc.aio.ServicerContext) -> pb.Ack:
        if event.type == pb.CacheEvent.PREFIX_EVICTED and not event.prefix_hash:
            self.greeted += 1
            return pb.Ack(accepted=True)
        held = self.held.setdefault(event.replica_id, {})
        if event.type == pb.CacheEvent.ALL_CLEARED:
            self.order.append("clear")
            held.clear()
        elif event.type == pb.CacheEvent.PREFIX_EVICTED:
            self.order.append("evict")
            for adapter, prefix_hash in list(held):
                if prefix_hash == event.prefix_hash and event.adapter_id in ("", adapter):
                    del held[adapter, prefix_hash]
        return pb.Ack(accepted=True)
