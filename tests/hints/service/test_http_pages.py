"""The pages beside gRPC over a live index: snapshot, policy, probe, health and metrics."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from terraflow.hints.deciding.look import Grounds
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.body import Part
from terraflow.hints.policy.policies import CachePolicy, Policies, PromptTemplate
from terraflow.hints.policy.sources import PolicySources
from terraflow.hints.service.http import Listener
from terraflow.hints.service.pages import internal_routes, public_routes
from terraflow.hints.words import PROBE_TENANT, Entry, Report, Stats

WALL_US = 1_700_000_000_000_000
TOKEN = b"token"


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> int:
        return WALL_US + round((self.at - 1_000.0) * 1e6)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Service:
    """Live hints with their two listeners' routes."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.live = LiveHints(Grounds(index=Index()), self.clock)
        template = PromptTemplate(ref="a/t", parts=(Part("x", ""),), slots=(), revision="r")
        folder = Policies(cache={"old": CachePolicy(affinity=False)}, templates={"a/t": template})
        self.sources = PolicySources(self.live.adopt, folder)
        self.live.adopt(folder)

    def report(self, replica: str, model: str, tenant: str, *hashes: bytes, stats: Stats | None = None) -> None:
        entries = tuple(Entry("", [each], [64], 1) for each in hashes)
        self.live.ingest(Report(replica=replica, model=model, tenant=tenant, scheme="s", entries=entries, stats=stats))

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[aiohttp.ClientSession]:
        listener = Listener(internal_routes(self.live, self.sources), host="127.0.0.1", port=0, token=TOKEN)
        port = await listener.start()
        headers = {"Authorization": f"Bearer {TOKEN.decode()}"}
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
                yield session
        finally:
            await listener.stop()


async def test_the_snapshot() -> None:
    service = Service()
    service.report("r1", "m1", "b", b"1", b"2", stats=Stats(cache_memory_bytes=5, hit_rate=0.5, pressure=0.25))
    service.clock.at += 1.5
    stats = Stats(cache_memory_bytes=7, hit_rate=0.7, t2_hit_tokens=3, t2_query_tokens=4)
    service.report("r1", "m2", "b", b"3", stats=stats)
    service.report("r2", "m1", "b", b"2", stats=Stats(hit_rate=0.1))
    service.report("r0", "m1", "a", b"1")
    service.report("__probe-x", "m1", PROBE_TENANT, b"9", stats=Stats())
    async with service.asked() as session, session.get("/snapshot") as response:
        assert response.content_type == "application/json"
        page: dict[str, Any] = await response.json()
    assert set(page) == {"replicas", "tenants", "totalPrefixes", "hotPrefixes"}
    assert [(row["tenant"], row["replicaId"]) for row in page["replicas"]] == [("a", "r0"), ("b", "r1"), ("b", "r2")]
    silent, row, _ = page["replicas"]
    event_at = row.pop("lastEventAt")
    assert event_at.endswith("Z")
    assert row == {
        "replicaId": "r1",
        "tenant": "b",
        "cacheMemoryBytes": 7,
        "hitRate": pytest.approx(0.7),
        "pressure": 0.0,
        "lastUpdate": "2023-11-14T22:13:21.500000Z",
        "prefixCount": 3,
        "statsReported": True,
        "t2HitTokens": 3,
        "t2QueryTokens": 4,
    }
    assert (silent["statsReported"], silent["lastUpdate"], silent["prefixCount"]) == (False, "0001-01-01T00:00:00Z", 1)
    assert page["tenants"] == [
        {"tenantId": "a", "indexEntries": 1, "hitRate": 0.0, "hitRateReported": False, "memoryUsed": 0},
        {"tenantId": "b", "indexEntries": 3, "hitRate": pytest.approx(0.4), "hitRateReported": True, "memoryUsed": 0},
    ]
    assert (page["totalPrefixes"], page["hotPrefixes"]) == (4, 0)


async def test_the_snapshot_of_nothing() -> None:
    async with Service().asked() as session, session.get("/snapshot") as response:
        assert await response.json() == {"replicas": [], "tenants": [], "totalPrefixes": 0, "hotPrefixes": 0}


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_policy_is_put_in_force(method: str) -> None:
    service = Service()
    body = {
        "version": 7,
        "policies": [{"namespace": "new", "evictionTTL": 10**9}],
        "tenants": [{"tenantID": "t", "maxIndexEntries": 1}],
    }
    async with service.asked() as session, session.request(method, "/policy", json=body) as response:
        assert (response.status, await response.read()) == (204, b"")
    assert service.live.grounds.policies.cache == {"new": CachePolicy(ttl_s=1.0)}
    assert service.live.grounds.policies.quotas == {"t": 1}
    assert set(service.live.grounds.policies.templates) == {"a/t"}
    assert service.live.index.ttl_s("new") == 1.0


async def test_a_refused_policy_changes_nothing() -> None:
    service = Service()
    before = service.live.grounds.policies
    async with service.asked() as session:
        async with session.post("/policy", json={"version": 7, "policies": [{"namespace": "x", "y": 1}]}) as response:
            assert response.status == 400
            (problem,) = (await response.json())["problems"]
            assert problem == {"field": "policies[0].y", "rule": "is no field of this manifest"}
        async with session.post("/policy", data=io.BytesIO(b" " * ((1 << 20) + 1))) as response:
            assert response.status == 413
        async with session.delete("/policy") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, POST, PUT")
    assert service.live.grounds.policies is before


ASKED = {"backend": "ns/b", "model": "m", "hashScheme": "vllm", "backendType": "LMCache"}


async def test_a_probe_and_that_it_leaves_nothing() -> None:
    service = Service()
    service.report("r", "m", "a", b"1")
    seen: list[str] = []
    service.live.listen(lambda change: seen.append(change.kind))
    async with service.asked() as session:
        for _ in range(2):
            async with session.post("/probe", json=ASKED) as response:
                assert (response.status, await response.json()) == (
                    200,
                    {"backend": "ns/b", "ingest": "ok", "routing": "ok", "t2": "skipped", "errors": []},
                )
    assert service.live.index.keys(PROBE_TENANT) == 0
    assert service.live.index.entries() == 1
    assert "added" in seen


async def test_a_probe_names_the_stage_that_failed() -> None:
    service = Service()
    service.live.adopt(Policies(quotas={PROBE_TENANT: 0}))
    async with service.asked() as session, session.post("/probe", json=ASKED) as response:
        found = await response.json()
    assert (found["ingest"], found["routing"], found["t2"]) == ("failed", "skipped", "skipped")
    assert found["errors"][0]["stage"] == "ingest"
    service.live.adopt(Policies(cache={PROBE_TENANT: CachePolicy(minimum_matched_tokens=65)}))
    async with service.asked() as session, session.post("/probe", json=ASKED) as response:
        found = await response.json()
    assert (found["ingest"], found["routing"], found["errors"][0]["stage"]) == ("ok", "failed", "routing")
    assert "AFFINITY_HINT" in found["errors"][0]["message"]
    assert service.live.index.entries() == 0


NO_PROBES = [
    b"",
    b"[]",
    b"{}",
    b'{"backend": "", "model": "m", "hashScheme": "s"}',
    b'{"backend": "b", "model": "m", "hashScheme": "s", "tenant": "t"}',
    b"[" * 4000,
]


@pytest.mark.parametrize("body", NO_PROBES)
async def test_what_is_no_probe(body: bytes) -> None:
    async with Service().asked() as session, session.post("/probe", data=body) as response:
        assert response.status == 400
        assert "no probe" in (await response.json())["error"]


async def test_a_large_probe() -> None:
    async with Service().asked() as session, session.post("/probe", data=b" " * 4097) as response:
        assert response.status == 413


async def test_the_public_pages() -> None:
    unready = "no policies yet"

    async def metrics() -> bytes:
        return b"inferencecache_server_up 1.0\n"

    listener = Listener(public_routes(metrics, lambda: unready), host="127.0.0.1", port=0)
    port = await listener.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/healthz") as response:
                assert (response.status, await response.text()) == (200, "ok\n")
            async with session.get("/readyz") as response:
                assert (response.status, await response.text()) == (503, "no policies yet\n")
            unready = ""
            async with session.get("/readyz") as response:
                assert response.status == 200
            async with session.get("/metrics") as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert await response.read() == b"inferencecache_server_up 1.0\n"
            async with session.get("/snapshot") as response:
                assert response.status == 404
    finally:
        await listener.stop()
