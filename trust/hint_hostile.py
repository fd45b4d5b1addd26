"""Hostile producers crash nothing, touch no other tenant, and fill no memory beyond the cap.

    python -m trust.hint_hostile [--flood 10000000] [--streams 3000]

A hint service as its operator runs it: tokens that bind producers, a quota for each tenant, an index of `ENTRIES`.
Four tenants fill their quotas, and while everything else happens a reader asks for their blocks without a pause: every
answer has to be the whole match. A fifth tenant's producer, with a token of its own, then

1. sends what is too large, too much, of others, or no number, and has to be refused or counted, never obeyed;
2. holds `--streams` report streams and as many event streams open, over `CHANNELS` connections;
3. reports `--flood` keys: the others' quotas stay whole, and the service's memory within a tenth of what it was when
   the index was full.

The reader's times are those of a process that is busy with being hostile, too.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import grpc
import grpc.aio

from terraflow.app.keys import new_key, public_path
from terraflow.core.reasons import Lookup
from terraflow.hints.service.identity import Binding, sign_token
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.wire.stub import Stub
from tests.hints.blackbox.served import Client, Served, chain, replicas, update

ENTRIES = 200_000
QUOTA = 10_000
VICTIMS = ("anna", "bert", "cleo", "dora")
FLOOD_QUOTA = ENTRIES - QUOTA * len(VICTIMS)
DEEP = 100
CHANNELS = 30
FLOOD_BLOCKS = 5_000
MEMORY_SHARE = 1.10

_MANIFEST = """apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {{name: {tenant}, namespace: {tenant}}}
spec: {{tenantID: {tenant}, isolationMode: Fairness, quota: {{maxIndexEntries: {keys}}}}}
"""


class Found(Exception):
    """Something that may not be."""


def expect(true: bool, what: str) -> None:
    """Raise Found unless it is so."""
    if not true:
        raise Found(what)


def refused(call: Callable[[], object], *codes: grpc.StatusCode) -> None:
    """The call has to end with one of these."""
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code() in codes, f"refused with {error.code()}, not {codes}")
    else:
        raise Found(f"taken, where {codes} was due")


def keys(tenant: str, first: int, number: int) -> list[bytes]:
    """A tenant's keys."""
    mark = tenant[:3].encode()
    return [mark + at.to_bytes(5, "big") for at in range(first, first + number)]


class Reader(threading.Thread):
    """Asks for the victims' blocks, over and over; `wrong` is what was not the whole match."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client, self._over = client, threading.Event()
        self.wrong: list[str] = []
        self.waited_ms: list[float] = []

    def run(self) -> None:
        """Until `stop`."""
        while not self._over.wait(0.005):
            for tenant in VICTIMS:
                began = time.monotonic()
                try:
                    answer = self._client.lookup(tenant, **chain(keys(tenant, 0, DEEP)))
                except grpc.RpcError as error:
                    self.wrong.append(f"{tenant}: {error.code()}")
                    continue
                self.waited_ms.append((time.monotonic() - began) * 1000)
                whole = answer.reason_code == Lookup.PREFIX_MATCH and replicas(answer) == ["engine-1"]
                if not whole or answer.replica_scores[0].matched_tokens != 64 * DEEP:
                    self.wrong.append(f"{tenant}: {answer.reason_code} {replicas(answer)}")

    def stop(self) -> None:
        """End, and wait for it."""
        self._over.set()
        self.join(30)


def rss_mb(pid: int) -> float:
    """Resident memory."""
    with Path(f"/proc/{pid}/status").open() as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def held(reader: Client) -> None:
    """Every victim's quota is whole."""
    for tenant in VICTIMS:
        summary = reader.state(tenant).summary
        expect(summary.total_prefixes == QUOTA, f"{tenant} holds {summary.total_prefixes} of {QUOTA} keys")


def rubbish(served: Served, hostile: Client) -> None:
    """Proof 1."""
    denied, exhausted = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED
    for tenant, replica in (("anna", "engine-1"), ("mallory", "engine-1"), ("anna", "mallory-1")):
        of = {"tenant_id": tenant, "model_id": "m", "replica_id": replica}
        refused(lambda of=of: hostile.event(pb.CacheEvent.ALL_CLEARED, **of), denied)
        refused(lambda of=of: hostile.report(update(of["replica_id"], [b"x"], tenant_id=of["tenant_id"])), denied)
    large = update("mallory-1", [bytes(1024)] * 5000, tenant_id="mallory")
    refused(lambda: hostile.report(large), exhausted)
    for million in ([b"h"] * 1_000_000, [bytes([at % 251, at // 251 % 251]) for at in range(1_000_000)]):
        pile = pb.CacheStateUpdate(replica_id="mallory-1", tenant_id="mallory", model_id="m", hash_scheme="s")
        pile.prefixes.add(block_hashes=million)
        hostile.report(pile)
    empty = pb.CacheStateUpdate(replica_id="mallory-1", tenant_id="mallory", model_id="m", hash_scheme="s")
    empty.prefixes.extend([pb.PrefixEntry()] * 1_000_000)
    hostile.report(empty)
    numbers = pb.ReplicaStats(hit_rate=math.nan, pressure=-math.inf, cache_memory_bytes=-(1 << 63), t2_hit_tokens=-1)
    for stamp in (-(1 << 63), (1 << 63) - 1):
        hostile.report(
            update("mallory-1", [b"n"], tenant_id="mallory", tokens=-(1 << 31), timestamp_us=stamp, stats=numbers)
        )
    for row in hostile.state("mallory").replicas:
        expect(math.isfinite(row.hit_rate) and math.isfinite(row.pressure), "a number that is none was kept")
    names = ("mallory-" + "r" * 60_000, "mallory-\0\n\u202e", "mallory-" + "../" * 100)
    for name in names:
        hostile.report(update(name, [b"n"], tenant_id="mallory", model_id=name))
    for at in range(2_000):
        hostile.report(update("mallory-1", [b"n"], tenant_id="mallory", model_id=f"model-{at}"))
    series = len(served.http("/metrics")[1].splitlines())
    expect(series < 60_000, f"/metrics has {series} lines")


async def streams(address: str, token: str, count: int, together_s: float) -> tuple[int, int]:
    """Proof 2: as many report streams and event streams at once; how many were served, and how many refused."""
    metadata = (("authorization", f"Bearer {token}"),)
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(CHANNELS)]
    message = update("mallory-1", [b"s"], tenant_id="mallory")
    together = asyncio.Event()

    async def report(stub: Stub) -> bool:
        async def slow() -> AsyncIterator[pb.CacheStateUpdate]:
            yield message
            await together.wait()
            yield message

        try:
            await stub.ReportCacheState(slow(), metadata=metadata, timeout=60)
        except grpc.aio.AioRpcError as error:
            expect(error.code() is not grpc.StatusCode.UNKNOWN, f"a stream ended with {error.details()}")
            return False
        return True

    async def listen(stub: Stub) -> bool:
        call = stub.StreamCacheEvents(pb.StreamEventsRequest(tenant_id="mallory"), metadata=metadata, timeout=60)
        try:
            await asyncio.wait_for(call.read(), together_s + 2)
        except (TimeoutError, grpc.aio.AioRpcError):
            return False
        finally:
            call.cancel()
        return True

    stubs = [Stub(channel) for channel in channels]
    tasks = [asyncio.create_task(report(stubs[at % CHANNELS])) for at in range(count)]
    tasks += [asyncio.create_task(listen(stubs[at % CHANNELS])) for at in range(count)]
    await asyncio.sleep(together_s)
    together.set()
    ended = await asyncio.gather(*tasks)
    for channel in channels:
        await channel.close()
    return sum(ended), len(ended) - sum(ended)


def flood(client: Client, token: str, first: int, count: int) -> None:
    """Proof 3: so many keys, in chains of one message each."""
    metadata = (("authorization", f"Bearer {token}"),)

    def messages() -> Iterator[pb.CacheStateUpdate]:
        for at in range(first, first + count, FLOOD_BLOCKS):
            yield update("mallory-1", keys("mallory", at, min(FLOOD_BLOCKS, first + count - at)), tenant_id="mallory")

    client.stub.ReportCacheState(messages(), metadata=metadata, timeout=3_600)


def prove(folder: Path, flooded: int, count: int, *, together_s: float = 5.0, entries_max: int = ENTRIES) -> None:
    """All of it; an index that is smaller than the quotas together is a planted fault. Raises Found."""
    signing = new_key(folder / "tokens.pem")

    def token(name: str, tenants: Sequence[str], held_by: Sequence[str]) -> str:
        binding = Binding(name=name, tenants=tuple(tenants), replicas=tuple(held_by))
        return sign_token(binding, int(time.time()) + 86_400, signing)

    policies = folder / "policies"
    policies.mkdir()
    for tenant, quota in [*((tenant, QUOTA) for tenant in VICTIMS), ("mallory", FLOOD_QUOTA)]:
        (policies / f"{tenant}.yaml").write_text(_MANIFEST.format(tenant=tenant, keys=quota))
    settings = {"token_keys": public_path(folder / "tokens.pem"), "policy_dir": policies, "entries_max": entries_max}
    with Served(folder, log_level="error", **settings) as served:
        engines = served.client(token=token("engines", VICTIMS, ["engine-*"]))
        for tenant in VICTIMS:
            engines.report(update("engine-1", keys(tenant, 0, QUOTA), tenant_id=tenant))
        hostile_token = token("mallory", ["mallory"], ["mallory-*"])
        hostile, looks = served.client(token=hostile_token), served.client()
        held(looks)
        reader = Reader(served.client())
        reader.start()
        try:
            rubbish(served, hostile)
            print("rubbish refused or counted", flush=True)
            served_streams, turned_away = asyncio.run(streams(served.at["grpc"], hostile_token, count, together_s))
            print(f"streams: {served_streams} served, {turned_away} turned away", flush=True)
            flood(hostile, hostile_token, 0, 2 * ENTRIES)
            full_mb = rss_mb(served.pid)
            began = time.monotonic()
            flood(hostile, hostile_token, 2 * ENTRIES, flooded)
            took = time.monotonic() - began
            after_mb = rss_mb(served.pid)
        finally:
            reader.stop()
        held(looks)
        expect(
            looks.state("mallory").summary.total_prefixes == FLOOD_QUOTA, "the flood was not taken in up to its quota"
        )
        last = keys("mallory", 2 * ENTRIES + flooded - FLOOD_BLOCKS, FLOOD_BLOCKS)
        expect(
            looks.lookup("mallory", **chain(last)).replica_scores[0].matched_tokens == 64 * FLOOD_BLOCKS, "not its last"
        )
        expect(not reader.wrong, f"{len(reader.wrong)} lookups of others went wrong: {reader.wrong[:3]}")
        expect(after_mb <= full_mb * MEMORY_SHARE, f"memory went from {full_mb:.0f} to {after_mb:.0f} MB")
        waited = sorted(reader.waited_ms)
        print(f"{flooded} keys in {took:.0f} s; memory {full_mb:.0f} MB when full, {after_mb:.0f} MB after")
        print(f"{len(waited)} lookups of others, all whole; p50 {waited[len(waited) // 2]:.1f} ms,"
              f" p99 {waited[len(waited) * 99 // 100]:.1f} ms, slowest {waited[-1]:.0f} ms")  # fmt: skip
        expect(served.stop() == 0, "it did not end as told")
        expect("Traceback" not in served.errors(), f"it logged a fault: {served.errors()[-2000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 for anything that may not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flood", type=int, default=10_000_000, help="keys that one tenant reports")
    parser.add_argument("--streams", type=int, default=3_000, help="report streams held open, and event streams too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        try:
            prove(Path(name), options.flood, options.streams)
        except Found as found:
            print(f"FOUND: {found}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
