"""The other RPCs, health and reflection, on the one port, with a real gRPC client."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from terraflow.core.reasons import Lookup, Render
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT
from tests.hints.blackbox.served import Client, Served, chain, replicas, until, update
from tests.raised import Raised

MANIFESTS = """
apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata: {name: greeting, namespace: acme}
spec:
  body: "You are {{persona}}. Say {{words}}."
  slots:
    - {name: persona, type: Stable, required: true}
    - {name: words, type: Mutable, required: true}
---
apiVersion: inferencecache.io/v1alpha1
kind: PDTopology
metadata:
  name: split
  namespace: acme
  annotations: {inferencecache.io/hash-scheme: s, inferencecache.io/transport: NIXL}
spec:
  prefillPools: [{name: p, matchLabels: {role: prefill}, replicas: 1}]
  decodePools: [{name: d, matchLabels: {role: decode}, replicas: 2}]
"""
REPLICAS = "replicas: {p1: {role: prefill}, d1: {role: decode}, d2: {role: decode}}"


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return uuid.uuid4().hex


# GetCacheState


def test_the_state_has_replicas_with_statistics_and_counts_keys(client: Client, tenant: str) -> None:
    said = pb.ReplicaStats(
        cache_memory_bytes=5, hit_rate=0.25, pressure=0.5, client_version="v1", t2_hit_tokens=3, t2_query_tokens=4
    )
    client.report(
        update("b", [b"1", b"2"], tenant_id=tenant, stats=said),
        update("a", [b"1"], tenant_id=tenant, stats=pb.ReplicaStats(replica_id="other")),
        update("silent", [b"3"], tenant_id=tenant),
    )
    state = client.state(tenant)
    said.replica_id = "b"
    assert list(state.replicas) == [pb.ReplicaStats(replica_id="a"), said]
    assert state.summary == pb.CacheSummary(total_prefixes=3)
    assert client.state(tenant, "other") == pb.GetCacheStateResponse(summary=pb.CacheSummary())


# PublishEvent


def test_an_eviction_removes_under_every_scheme_and_adapter_or_under_one(client: Client, tenant: str) -> None:
    def held(scheme: str, adapter: str) -> bool:
        answer = client.lookup(tenant, scheme=scheme, adapter_id=adapter, **chain([b"a"]))
        return answer.reason_code == Lookup.PREFIX_MATCH

    places = [(scheme, adapter) for scheme in ("s", "s2") for adapter in ("", "lora")]
    for scheme, adapter in places:
        client.report(
            update("r", [b"a"], [b"b"], tenant_id=tenant, hash_scheme=scheme, adapter_id=adapter),
            update("q", [b"b"], tenant_id=tenant, hash_scheme=scheme),
        )
    evicted = {"tenant_id": tenant, "model_id": "m", "replica_id": "r", "prefix_hash": b"a"}
    assert client.event(pb.CacheEvent.PREFIX_EVICTED, adapter_id="lora", **evicted).accepted
    assert [held(*place) for place in places] == [True, False, True, False]
    assert client.event(pb.CacheEvent.PREFIX_EVICTED, **evicted).accepted
    assert [held(*place) for place in places] == [False] * 4


def test_a_clear_takes_everything_of_a_replica_and_an_addition_nothing(client: Client, tenant: str) -> None:
    for replica in ("r", "q"):
        client.report(update(replica, [b"a", b"b"], tenant_id=tenant, stats=pb.ReplicaStats(hit_rate=0.5)))
    of = {"tenant_id": tenant, "model_id": "m", "replica_id": "r"}
    for kind in (pb.CacheEvent.PREFIX_ADDED, pb.CacheEvent.REPLICA_UPDATED, pb.CacheEvent.TYPE_UNSPECIFIED, 77):
        assert client.event(kind, prefix_hash=b"new", **of).accepted
    assert client.state(tenant).summary.total_prefixes == 2
    assert client.event(pb.CacheEvent.ALL_CLEARED, **of).accepted
    assert [row.replica_id for row in client.state(tenant).replicas] == ["q"]
    assert client.state(tenant).summary.total_prefixes == 2
    assert client.event(pb.CacheEvent.ALL_CLEARED, **(of | {"replica_id": "q"})).accepted
    assert client.state(tenant).summary.total_prefixes == 0


# ReportCacheState


def test_a_report_is_acknowledged_after_the_producer_closed_its_side(client: Client, tenant: str) -> None:
    closing = threading.Event()

    def updates() -> Iterator[pb.CacheStateUpdate]:
        yield update("r", [b"a"], tenant_id=tenant)
        closing.wait(10)
        yield update("r", [b"b"], tenant_id=tenant)

    acknowledged = client.stub.ReportCacheState.future(updates(), timeout=20)
    until(lambda: client.state(tenant).summary.total_prefixes == 1)
    assert not acknowledged.done()
    closing.set()
    assert acknowledged.result() == pb.Ack(accepted=True)
    assert client.state(tenant).summary.total_prefixes == 2


# LookupPDRoute and RenderTemplate


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a template and a topology."""
    folder = tmp_path_factory.mktemp("acme")
    (folder / "policies").mkdir()
    (folder / "policies" / "acme.yaml").write_text(MANIFESTS)
    (folder / "policies" / "replicas.yaml").write_text(REPLICAS)
    (folder / "key").write_bytes(b"k" * 32)
    with Served(
        folder, insecure_producers=True, policy_dir=folder / "policies", namespace_key_file=folder / "key"
    ) as running:
        yield running


def test_a_template_is_rendered(acme: Served, raised: Raised) -> None:
    client = acme.client()
    one, two = (client.render("acme/greeting", "acme", persona="a poet", words=words) for words in ("hi", "bye"))
    assert raised.render(one) is Render.OK
    assert one.rendered_prompt == b"You are a poet. Say hi."
    assert one.stable_prefix_hash == two.stable_prefix_hash
    assert len(one.stable_prefix_hash) == len(one.tenant_namespace) == 32
    assert one.template_revision
    assert raised.render(client.render("acme/none", "acme")) is Render.TEMPLATE_NOT_FOUND
    assert raised.render(client.render("acme/greeting", "acme", persona="x")) is Render.RENDER_ERROR
    assert raised.render(client.render("acme/greeting", "acme", persona="x", words="y", z="")) is Render.RENDER_ERROR


def test_prefill_and_decode_replicas_are_chosen_by_prefix_and_then_by_load(acme: Served, raised: Raised) -> None:
    client = acme.client()
    asked = {
        "pd_topology_ref": "acme/split",
        "tenant_id": "acme",
        "model_id": "m",
        "prefix_hash": b"p",
        "prefix_token_count": 100,
    }
    empty = client.pd_route(**asked)
    assert (raised.lookup(empty), empty.prefill_replica_id, empty.decode_replica_id) == (Lookup.NO_HINT, "", "")
    assert client.pd_route(**(asked | {"pd_topology_ref": "acme/none"})).reason_code == Lookup.NO_HINT
    assert client.pd_route(**(asked | {"tenant_id": PROBE_TENANT})).reason_code == Lookup.NO_HINT
    client.report(update("d1", [b"z"], tenant_id="acme", stats=pb.ReplicaStats(pressure=0.9)))
    miss = client.pd_route(**asked)
    assert (raised.lookup(miss), miss.prefill_replica_id, miss.decode_replica_id, miss.transport_hint) == (
        Lookup.AFFINITY_HINT,
        "p1",
        "d2",
        "NIXL",
    )
    assert client.pd_route(**(asked | {"tenant_id": "other"})).reason_code == Lookup.UNKNOWN_TENANT
    prefix = pb.PrefixEntry(prefix_hash=b"p", token_count=100)
    client.report(
        pb.CacheStateUpdate(replica_id="d1", tenant_id="acme", model_id="m", hash_scheme="s", prefixes=[prefix])
    )
    whole = client.pd_route(**asked)
    assert (raised.lookup(whole), whole.prefill_replica_id, whole.decode_replica_id) == (
        Lookup.PREFIX_MATCH,
        "d1",
        "d1",
    )


# Streams


def test_changes_are_streamed_as_they_come_and_as_they_are_asked_for(served: Served, tenant: str) -> None:
    client = served.client()
    every = client.events(tenant_id=tenant)
    only = client.events(model_id="m2", tenant_id=tenant, types=[pb.CacheEvent.ALL_CLEARED])
    until(lambda: served.metric('terraflow_hints_streams_open{stream="events"}') == 2)
    client.report(update("r", [b"a", b"b"], tenant_id="elsewhere"))
    client.report(update("r", [b"a", b"b"], tenant_id=tenant, adapter_id="lora"))
    client.report(update("r", [b"a"], tenant_id=tenant, adapter_id="lora"))
    client.report(update("r", tenant_id=tenant, stats=pb.ReplicaStats()))
    of = {"tenant_id": tenant, "replica_id": "r"}
    client.event(pb.CacheEvent.PREFIX_EVICTED, prefix_hash=b"a", model_id="m", **of)
    client.event(pb.CacheEvent.ALL_CLEARED, model_id="m", **of)
    client.report(update("r", [b"a"], tenant_id=tenant, model_id="m2"))
    client.event(pb.CacheEvent.ALL_CLEARED, model_id="m2", **of)
    seen = [(event.type, event.prefix_hash, event.adapter_id) for _, event in zip(range(7), every, strict=False)]
    assert seen == [
        (pb.CacheEvent.PREFIX_ADDED, b"a", "lora"),
        (pb.CacheEvent.PREFIX_ADDED, b"b", "lora"),
        (pb.CacheEvent.REPLICA_UPDATED, b"", ""),
        (pb.CacheEvent.PREFIX_EVICTED, b"a", "lora"),
        (pb.CacheEvent.ALL_CLEARED, b"", ""),
        (pb.CacheEvent.PREFIX_ADDED, b"a", ""),
        (pb.CacheEvent.ALL_CLEARED, b"", ""),
    ]
    cleared = next(only)
    assert (cleared.model_id, cleared.replica_id, cleared.tenant_id) == ("m2", "r", tenant)
    assert cleared.timestamp_us > 0
    every.cancel()
    only.cancel()
    until(lambda: served.metric('terraflow_hints_streams_open{stream="events"}') == 0)


def test_a_reader_that_does_not_read_loses_changes_and_stalls_nobody(served: Served, tenant: str) -> None:
    client = served.client()
    stream = client.events(30, tenant_id=tenant)
    until(lambda: served.metric('terraflow_hints_streams_open{stream="events"}') == 1)
    client.report(*(update("r", [b"%d/%d" % (i, j) for j in range(2_000)], tenant_id=tenant) for i in range(20)))
    assert client.state(tenant).summary.total_prefixes == 40_000
    assert served.metric('terraflow_hints_stream_dropped_total{stream="events"}') > 0
    assert next(stream).type == pb.CacheEvent.PREFIX_ADDED
    stream.cancel()


def test_metrics_are_streamed_at_once_by_series_or_family(client: Client, tenant: str) -> None:
    client.lookup(tenant, tenant)
    names = ["inferencecache_server_up", "inferencecache_lookup_route_calls_total"]
    stream = client.metrics(*names)
    found = {}
    for metric in stream:
        found[metric.name, metric.labels.get("model")] = metric
        if len(found) > 1 and metric.labels.get("model") == tenant:
            break
    stream.cancel()
    up = found["inferencecache_server_up", None]
    assert (up.type, up.value) == ("gauge", 1.0)
    calls = found["inferencecache_lookup_route_calls_total", tenant]
    assert (calls.type, calls.value) == ("counter", 1.0)
    assert calls.timestamp_us > 0
    assert {name for name, _ in found} == set(names)


# Health, reflection, and what is not there


def test_health_and_reflection_answer_on_the_same_port(client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "inferencecache.v1alpha1.InferenceCache"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert "inferencecache.v1alpha1.InferenceCache" in database.get_services()
    described = database.FindFileContainingSymbol("inferencecache.v1alpha1.InferenceCache")
    assert len(described.service[0].method) == 8


def test_an_unknown_method_is_unimplemented(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        client.channel.unary_unary("/inferencecache.v1alpha1.InferenceCache/Nothing")(b"", timeout=10)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_what_operators_ask_over_http(served: Served, client: Client, tenant: str) -> None:
    client.report(update("r", [b"a"], tenant_id=tenant, stats=pb.ReplicaStats(hit_rate=0.5)))
    assert served.http("/healthz")[0] == 200
    assert served.http("/readyz")[0] == 200
    status, snapshot = served.http("/snapshot", at="internal")
    assert (status, tenant.encode() in snapshot) == (200, True)
    asked = {"tenant": tenant, "model": "m", "scheme": "s", "block_hashes": ["61"], "block_tokens": 64}
    status, explained = served.http("/explain", at="internal", method="POST", body=asked)
    assert (status, b'"reason":"PREFIX_MATCH"' in explained) == (200, True)
    assert served.http("/explain", at="internal", method="POST", body={"tenant": "t"})[0] == 400
    probe = {"backend": "b", "model": "m", "hashScheme": "s", "backendType": "vllm"}
    status, probed = served.http("/probe", at="internal", method="POST", body=probe)
    assert (status, b'"routing":"ok"' in probed) == (200, True)


def test_posted_policies_govern_at_once(tmp_path: Path) -> None:
    with Served(tmp_path, insecure_producers=True) as served:
        client = served.client()
        client.report(update("r", [b"a"], tokens=16))
        assert client.lookup(**chain([b"a"], tokens=16)).reason_code == Lookup.AFFINITY_HINT
        policy = {"namespace": "t", "minimumMatchedTokens": 0, "routingFloorScore": 0}
        body = {"version": 3, "policies": [policy], "tenants": []}
        assert served.http("/policy", at="internal", method="POST", body=body)[0] == 204
        answer = client.lookup(**chain([b"a"], tokens=16))
        assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["r"])
        assert served.http("/policy", at="internal", method="POST", body={"version": 9})[0] == 400
        assert client.lookup(**chain([b"a"], tokens=16)).reason_code == Lookup.PREFIX_MATCH
