"""The port over gRPC, to a server that answers, lags, or dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from terraflow.app.fleets import open_fleets
from terraflow.app.opening import CannotStart
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import Settings
from terraflow.core.reasons import Lookup
from terraflow.hints.plane.breaker import FAILURES_MAX
from terraflow.hints.plane.client import RemoteHints
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT
from terraflow.ports.hints import Hint, Prefix
from tests.harness.ports import kept_port
from tests.hints.http2.authority import Authority, Pem
from tests.hints.wire.serving import handler

DEADLINE_S = 0.2
PREFIX = Prefix(
    tenant="fleet", model="m", scheme="s", adapter="a", hashes=[b"1" * 8, b"2" * 8], counts=[128, 128], tokens=300
)


class Server:
    """A server of the contract; `answer` may wait or raise."""

    def __init__(self) -> None:
        self.asked: list[pb.LookupRouteRequest] = []
        self.reported: list[pb.CacheStateUpdate] = []
        self.events: list[pb.CacheEvent] = []
        self.asked_of: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.answer: Callable[[], Awaitable[pb.LookupRouteResponse]] = no_hint

    async def LookupRoute(self, request: pb.LookupRouteRequest, context: Any) -> pb.LookupRouteResponse:
        self.asked.append(request)
        self.metadata = dict(context.invocation_metadata())
        return await self.answer()

    async def ReportCacheState(self, updates: Any, context: Any) -> pb.Ack:
        async for update in updates:
            self.reported.append(update)
        return pb.Ack(accepted=True)

    async def PublishEvent(self, event: pb.CacheEvent, context: Any) -> pb.Ack:
        self.events.append(event)
        return pb.Ack(accepted=True)

    async def GetCacheState(self, request: Any, context: Any) -> pb.GetCacheStateResponse:
        self.asked_of.append(request.model_id)
        return pb.GetCacheStateResponse(replicas=[pb.ReplicaStats(replica_id="r0", pressure=0.5)])


async def no_hint() -> pb.LookupRouteResponse:
    return pb.LookupRouteResponse(reason_code="NO_HINT")


async def match() -> pb.LookupRouteResponse:
    scores = [pb.ReplicaScore(replica_id="r1", score=120.5, matched_tokens=128)]
    return pb.LookupRouteResponse(reason_code="PREFIX_MATCH", replica_scores=scores)


async def late() -> pb.LookupRouteResponse:
    await asyncio.sleep(5)
    raise AssertionError("nobody waits so long")


async def broken() -> pb.LookupRouteResponse:
    raise RuntimeError("planted")


@asynccontextmanager
async def serving(port: int = 0, tls: Pem | None = None) -> AsyncIterator[tuple[Server, int]]:
    servicer, server = Server(), grpc.aio.server()
    server.add_generic_rpc_handlers((handler(servicer),))
    if tls is None:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    try:
        yield servicer, bound
    finally:
        await server.stop(None)


@asynccontextmanager
async def remote(port: int, **options: Any) -> AsyncIterator[RemoteHints]:
    client = RemoteHints(f"127.0.0.1:{port}", SystemClock(), try_timeout_s=DEADLINE_S, **options)
    try:
        yield client
    finally:
        await client.close()


async def until(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "did not come to hold"
        await asyncio.sleep(0.02)


async def test_a_lookup_over_the_wire_carries_the_prefix_and_brings_the_ranking() -> None:
    async with serving() as (server, port), remote(port, token="t0ken") as client:
        server.answer = match
        hint = await client.hint(PREFIX, DEADLINE_S)
    assert hint.reason is Lookup.PREFIX_MATCH
    assert [(one.replica, one.score, one.matched_tokens) for one in hint.ranked] == [("r1", 120.5, 128)]
    asked = server.asked[0]
    assert (asked.tenant_id, asked.model_id, asked.hash_scheme, asked.adapter_id) == ("fleet", "m", "s", "a")
    assert list(asked.block_hashes) == [b"1" * 8, b"2" * 8]
    assert list(asked.block_token_counts) == [128, 128]
    assert server.metadata["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize("known", [True, False])
async def test_over_tls_the_service_must_be_who_it_says(known: bool, tmp_path: Path) -> None:
    ours, others = Authority(), Authority("others")
    (tmp_path / "ca.pem").write_bytes((ours if known else others).pem)
    (tmp_path / "token").write_text("t0ken\n")
    async with serving(tls=ours.give("localhost")) as (server, port):
        server.answer = match
        settings = Settings(
            hints=f"127.0.0.1:{port}",
            hints_tls=True,
            hints_ca_file=str(tmp_path / "ca.pem"),
            hints_token_file=str(tmp_path / "token"),
            hint_deadline_ms=2_000,
        )
        fleets = await open_fleets(settings, SystemClock())
        assert fleets._hints is not None
        hint = await fleets._hints.hint(PREFIX, 2.0)
        await fleets.close()
    assert (hint.reason is Lookup.PREFIX_MATCH) is known
    assert server.metadata.get("authorization") == ("Bearer t0ken" if known else None)


async def test_a_code_that_is_not_known_is_no_hint() -> None:
    async def odd() -> pb.LookupRouteResponse:
        return pb.LookupRouteResponse(reason_code="SOMETHING_NEW", replica_scores=[pb.ReplicaScore(replica_id="r1")])

    async with serving() as (server, port), remote(port) as client:
        server.answer = odd
        hint = await client.hint(PREFIX, DEADLINE_S)
    assert (hint.reason, hint.ranked) == (Lookup.NO_HINT, ())


async def test_of_an_answer_of_millions_of_replicas_the_first_are_read() -> None:
    async def flood() -> pb.LookupRouteResponse:
        scores = [pb.ReplicaScore(replica_id="r1", matched_tokens=-(1 << 31)), *[pb.ReplicaScore()] * 100_000]
        return pb.LookupRouteResponse(reason_code="TENANT_HOT", replica_scores=scores)

    async def beyond() -> pb.LookupRouteResponse:
        return pb.LookupRouteResponse(reason_code="PREFIX_MATCH", replica_scores=[pb.ReplicaScore()] * 1_000_000)

    async with serving() as (server, port), remote(port) as client:
        server.answer = flood
        hint = await client.hint(PREFIX, 5.0)
        assert (len(hint.ranked), hint.ranked[0].replica, hint.ranked[0].matched_tokens) == (1_024, "r1", 0)
        server.answer = beyond
        assert await client.hint(PREFIX, 5.0) == Hint(reason=Lookup.NO_HINT)


async def test_a_slow_service_costs_its_deadline_a_few_times_and_then_nothing_until_it_is_well() -> None:
    async with serving() as (server, port), remote(port) as client:
        server.answer = late
        for _ in range(FAILURES_MAX):
            began = time.monotonic()
            assert (await client.hint(PREFIX, 0.05)).reason is Lookup.TIMEOUT
            assert time.monotonic() - began < 2.0
        began = time.monotonic()
        for _ in range(200):
            assert (await client.hint(PREFIX, 0.05)).reason is Lookup.NO_HINT
        # Had they waited, it would be ten seconds.
        assert time.monotonic() - began < 2.0
        assert sum(asked.tenant_id != PROBE_TENANT for asked in server.asked) == FAILURES_MAX
        server.answer = match
        await until(lambda: server.asked[-1].tenant_id == PROBE_TENANT)
        await asyncio.sleep(0.1)
        assert (await client.hint(PREFIX, DEADLINE_S)).reason is Lookup.PREFIX_MATCH


async def test_an_absent_service_is_no_hint_and_is_found_when_it_comes() -> None:
    port = kept_port()
    async with remote(port) as client:
        for _ in range(20):
            assert (await client.hint(PREFIX, DEADLINE_S)).reason in (Lookup.NO_HINT, Lookup.TIMEOUT)
        async with serving(port) as (server, _):
            server.answer = match
            await until(lambda: any(asked.tenant_id == PROBE_TENANT for asked in server.asked))
            await asyncio.sleep(0.1)
            assert (await client.hint(PREFIX, DEADLINE_S)).reason is Lookup.PREFIX_MATCH


async def test_a_service_that_fails_is_no_hint() -> None:
    async with serving() as (server, port), remote(port) as client:
        server.answer = broken
        assert (await client.hint(PREFIX, DEADLINE_S)).reason is Lookup.NO_HINT


async def test_nothing_that_cannot_be_sent_raises() -> None:
    async with serving() as (_, port), remote(port) as client:
        odd = msgspec.structs.replace(PREFIX, tenant="\ud800")
        assert (await client.hint(odd, DEADLINE_S)).reason is Lookup.NO_HINT


async def test_what_was_just_sent_is_remembered_where_the_service_knows_nothing() -> None:
    async with serving() as (_, port), remote(port) as client:
        assert (await client.hint(PREFIX, DEADLINE_S)).ranked == ()
        client.sent(PREFIX, "r2", 0)
        hint = await client.hint(PREFIX, DEADLINE_S)
        assert (hint.reason, hint.ranked[0].replica) == (Lookup.PREFIX_MATCH, "r2")
        client.ended(PREFIX, "r2", held=False)
        assert (await client.hint(PREFIX, DEADLINE_S)).ranked == ()


@pytest.mark.parametrize(("matched", "named"), [(15, ["r1", "r2"]), (14, ["r2"])])
async def test_a_match_that_is_no_material_share_is_left_out(matched: int, named: list[str]) -> None:
    async def shared() -> pb.LookupRouteResponse:
        scores = [pb.ReplicaScore(replica_id=f"r{at}", matched_tokens=(matched, 200)[at - 1]) for at in (1, 2)]
        return pb.LookupRouteResponse(reason_code="PREFIX_MATCH", replica_scores=scores)

    async with serving() as (server, port), remote(port) as client:
        server.answer = shared
        assert [one.replica for one in (await client.hint(PREFIX, DEADLINE_S)).ranked] == named
        longer = msgspec.structs.replace(PREFIX, tokens=4_001)
        assert await client.hint(longer, DEADLINE_S) == Hint(reason=Lookup.NO_HINT)
        client.sent(longer, "r3", 0)
        assert [one.replica for one in (await client.hint(longer, DEADLINE_S)).ranked] == ["r3"]


async def test_of_its_affinity_a_service_that_counts_only_who_has_reported_is_not_the_judge() -> None:
    async def affine() -> pb.LookupRouteResponse:
        return pb.LookupRouteResponse(reason_code="AFFINITY_HINT", replica_scores=[pb.ReplicaScore(replica_id="r1")])

    other = msgspec.structs.replace(PREFIX, hashes=[b"3" * 8], counts=[128])
    async with serving() as (server, port), remote(port) as client:
        server.answer = affine
        client.joined("fleet", "m", "s", ["r1", "r2"])
        for busy, matched, named in (("r1", 200, "r2"), ("r2", 0, "r1")):
            client.sent(other, busy, matched)
            hint = await client.hint(PREFIX, DEADLINE_S)
            assert (hint.reason, [one.replica for one in hint.ranked]) == (Lookup.AFFINITY_HINT, [named])


async def test_an_unreported_prefix_is_reported_when_its_call_has_ended() -> None:
    ours = msgspec.structs.replace(PREFIX, unreported=True)
    async with serving() as (server, port), remote(port) as client:
        client.sent(ours, "r2", 0)
        client.ended(ours, "r2", held=True)
        client.ended(ours, "r1", held=False)
        client.ended(PREFIX, "r0", held=True)
        await until(lambda: bool(server.reported))
        await asyncio.sleep(0.3)
    (update,) = server.reported
    assert (update.replica_id, update.tenant_id, update.hash_scheme) == ("r2", "fleet", "s")
    assert list(update.prefixes[0].block_hashes) == list(PREFIX.hashes)
    assert list(update.prefixes[0].block_token_counts) == [128, 128]


async def test_a_lost_replica_is_told_of_once() -> None:
    async with serving() as (server, port), remote(port) as client:
        for _ in range(5):
            client.lost(PREFIX, "r1")
        await until(lambda: bool(server.events))
        await asyncio.sleep(0.2)
    (event,) = server.events
    assert (event.type, event.replica_id, event.tenant_id, event.model_id) == (
        pb.CacheEvent.ALL_CLEARED, "r1", "fleet", "m",
    )  # fmt: skip


async def test_what_a_lost_replica_held_is_not_reported_after_its_loss() -> None:
    ours = msgspec.structs.replace(PREFIX, unreported=True)
    async with serving() as (server, port), remote(port) as client:
        client.ended(ours, "r1", held=True)
        client.ended(ours, "r2", held=True)
        client.lost(ours, "r1")
        await until(lambda: bool(server.events) and bool(server.reported))
        await asyncio.sleep(0.2)
    assert [update.replica_id for update in server.reported] == ["r2"]


async def test_pressure_is_read_beside_the_requests_and_of_no_fleet_that_has_left() -> None:
    async with serving() as (server, port), remote(port) as client:
        assert client.pressure("fleet", "m") == client.pressure("fleet", "other") == {}
        for scheme in ("s", "z"):
            client.joined("fleet", "m", scheme, ["r0"])
        assert client.pressure("fleet", "m") == {}
        await until(lambda: client.pressure("fleet", "m") == {"r0": 0.5})
        client.joined("fleet", "m", "s", [])
        assert client.pressure("fleet", "m") == {"r0": 0.5}
        client.joined("fleet", "m", "z", [])
        assert client.pressure("fleet", "m") == {}
        await until(lambda: client._tasks["pressure"].done())
        client.joined("fleet", "m", "s", ["r0"])
        await until(lambda: client.pressure("fleet", "m") == {"r0": 0.5})
    assert set(server.asked_of) == {"m"}


async def test_what_was_sent_to_a_lost_replica_is_no_match() -> None:
    async with serving() as (_, port), remote(port) as client:
        for replica in ("r1", "r2"):
            client.sent(PREFIX, replica, 0)
        client.sent(PREFIX, "r1", 0)
        client.ended(PREFIX, "r1", held=True)
        client.lost(PREFIX, "r1")
        assert [one.replica for one in (await client.hint(PREFIX, DEADLINE_S)).ranked] == ["r2"]


async def test_that_the_service_answers_no_longer_and_that_it_does_again_is_a_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "terraflow.hints")
    port = kept_port()
    async with remote(port) as client:
        for _ in range(FAILURES_MAX * 4):
            await client.hint(PREFIX, DEADLINE_S)
        (lost,) = caplog.records
        assert lost.levelname == "WARNING"
        said = (
            f"the hint service 127.0.0.1:{port}: does not answer, and requests go on without its hints: UNAVAILABLE, "
        )
        assert lost.getMessage().startswith(said) and "Connection refused" in lost.getMessage()
        async with serving(port):
            await until(lambda: len(caplog.records) == 2)
            assert caplog.records[1].getMessage() == f"the hint service 127.0.0.1:{port}: answers again"


async def test_an_authority_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(CannotStart, match=f"hints_ca_file: {file} holds no certificate in PEM"):
        await open_fleets(Settings(hints="hints.internal:1", hints_tls=True, hints_ca_file=str(file)), SystemClock())
