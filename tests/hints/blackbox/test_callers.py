"""Who may say and ask what: TLS, client certificates, tokens, and callers without either."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from terraflow.core.reasons import Lookup, Render
from terraflow.hints.wire import inferencecache_pb2 as pb
from tests.hints.blackbox.certificates import Authority
from tests.hints.blackbox.served import Client, Served, chain, replicas, until, update


def issue(folder: Path, *options: str) -> str:
    """A token, as an operator makes one."""
    command = [Path(sys.executable).with_name("terraflow"), "hints", "token", "--key", folder / "tokens.pem", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()


def refused(call: Callable[[], object]) -> grpc.StatusCode:
    """The status that a call is refused with."""
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return failed.value.code()


PRODUCER = ("--name", "engines", "--tenant", "acme", "--replica", "engine-*")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where keys and certificates are."""
    return tmp_path_factory.mktemp("callers")


@pytest.fixture(scope="module")
def producer(folder: Path) -> str:
    """A producer's token."""
    return issue(folder, "--new-key", *PRODUCER)


@pytest.fixture(scope="module")
def guarded(folder: Path, producer: str) -> Iterator[Served]:
    """A service that takes tokens, in plaintext on loopback."""
    served = folder / "guarded"
    served.mkdir()
    with Served(served, token_keys=folder / "tokens.pub.pem") as running:
        running.client(token=producer).report(update("engine-1", [b"a"], tenant_id="acme"))
        yield running


def event_of(client: Client, tenant: str, replica: str) -> Callable[[], object]:
    of = {"tenant_id": tenant, "model_id": "m", "replica_id": replica}
    return lambda: client.event(pb.CacheEvent.ALL_CLEARED, **of)


def test_a_producer_without_an_identity_is_turned_away(guarded: Served) -> None:
    client = guarded.client()
    assert refused(lambda: client.report(update("engine-1", [b"z"], tenant_id="acme"))) == (
        grpc.StatusCode.UNAUTHENTICATED
    )
    assert refused(event_of(client, "acme", "engine-1")) == grpc.StatusCode.UNAUTHENTICATED
    assert refused(lambda: client.report()) == grpc.StatusCode.UNAUTHENTICATED
    assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH


@pytest.mark.parametrize(("tenant", "replica"), [("rival", "engine-1"), ("acme", "other"), ("acme", "")])
def test_a_producer_speaks_for_its_own_tenants_and_replicas(
    guarded: Served, producer: str, tenant: str, replica: str
) -> None:
    client = guarded.client(token=producer)
    assert refused(lambda: client.report(update(replica, [b"z"], tenant_id=tenant))) == (
        grpc.StatusCode.PERMISSION_DENIED
    )
    assert refused(event_of(client, tenant, replica)) == grpc.StatusCode.PERMISSION_DENIED
    answer = guarded.client().lookup("acme", **chain([b"a"]))
    assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["engine-1"])


def test_what_came_before_a_refused_message_counts(guarded: Served, producer: str) -> None:
    client = guarded.client(token=producer)
    updates = (update("engine-2", [b"early"], tenant_id="acme"), update("other", [b"early"], tenant_id="acme"))
    assert refused(lambda: client.report(*updates)) == grpc.StatusCode.PERMISSION_DENIED
    assert replicas(guarded.client().lookup("acme", **chain([b"early"]))) == ["engine-2"]


def test_a_reader_reports_nothing_and_sees_its_own_tenant_only(guarded: Served, folder: Path, producer: str) -> None:
    reader = guarded.client(token=issue(folder, "--name", "gateway", "--tenant", "rival"))
    assert refused(lambda: reader.report(update("r", tenant_id="rival"))) == grpc.StatusCode.PERMISSION_DENIED
    foreign = reader.lookup("acme", **chain([b"a"]))
    assert (foreign.reason_code, replicas(foreign)) == (Lookup.NO_HINT, [])
    assert reader.lookup("nobody", **chain([b"a"])).reason_code == Lookup.NO_HINT
    assert reader.lookup("rival", **chain([b"a"])).reason_code == Lookup.UNKNOWN_TENANT
    guarded.client(token=producer).report(update("engine-1", tenant_id="acme", stats=pb.ReplicaStats(hit_rate=0.5)))
    assert reader.state("acme") == pb.GetCacheStateResponse(summary=pb.CacheSummary())
    split = {"model_id": "m", "prefix_hash": b"a"}
    for tenant, topology in (("acme", "rival/x"), ("rival", "acme/x")):
        answer = reader.pd_route(tenant_id=tenant, pd_topology_ref=topology, **split)
        assert answer.reason_code == Lookup.NO_HINT
    assert guarded.metric('terraflow_hints_pd_route_calls_total{cause="foreign_tenant",reason_code="NO_HINT"}') == 2


def test_streams_tell_a_reader_of_its_own_tenant_only(guarded: Served, folder: Path, producer: str) -> None:
    both = issue(folder, "--name", "p", "--tenant", "acme", "--tenant", "watched", "--replica", "*")
    writer, reader = (
        guarded.client(token=both),
        guarded.client(token=issue(folder, "--name", "g", "--tenant", "watched")),
    )
    stream = reader.events()
    until(lambda: guarded.metric('terraflow_hints_streams_open{stream="events"}') == 1)
    writer.report(update("r", [b"secret"], tenant_id="acme"), update("r", [b"own"], tenant_id="watched"))
    assert next(stream).prefix_hash == b"own"
    stream.cancel()
    writer.lookup("acme", "secret-model")
    seen = []
    with pytest.raises(grpc.RpcError):
        for metric in reader.metrics("inferencecache_lookup_route_calls", "inferencecache_server_up", timeout=2):
            seen.append((metric.name, metric.labels.get("model", "")))  # noqa: PERF401
    assert ("inferencecache_server_up", "") in seen
    assert "secret-model" not in {model for _, model in seen}


@pytest.mark.parametrize("bad", ["nonsense", "e30.e30"])
def test_a_bad_token_refuses_a_producer_and_costs_a_lookup_its_hint(guarded: Served, bad: str) -> None:
    client = guarded.client(token=bad)
    assert refused(lambda: client.report(update("engine-1", tenant_id="acme"))) == grpc.StatusCode.UNAUTHENTICATED
    assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.NO_HINT


def test_readers_need_an_identity_where_the_settings_say_so(folder: Path, producer: str) -> None:
    served = folder / "closed"
    served.mkdir()
    with Served(served, token_keys=folder / "tokens.pub.pem", anonymous_readers=False) as running:
        known = running.client(token=producer)
        known.report(update("engine-1", [b"a"], tenant_id="acme"))
        assert known.lookup("acme", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH
        assert running.client().lookup("acme", **chain([b"a"])).reason_code == Lookup.NO_HINT


# TLS


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """Who signs the server's certificate and the clients'."""
    return Authority(folder)


@pytest.fixture(scope="module")
def tls(folder: Path, authority: Authority) -> Iterator[Served]:
    """A service on TLS that knows two client certificates."""
    served = folder / "tls"
    served.mkdir()
    cert, key = authority.issue("server")
    identities = """
[[identities]]
name = "spiffe://fleet/engine"
tenants = ["acme"]
replicas = ["engine-1"]

[[identities]]
name = "gateway"
tenants = ["acme"]
"""
    with Served(served, identities, tls_cert_file=cert, tls_key_file=key, client_ca_file=authority.file) as running:
        yield running


def test_a_client_certificate_binds_its_producer(tls: Served, authority: Authority) -> None:
    engine = tls.client(authority.credentials(authority.issue("engine", "spiffe://fleet/engine")))
    assert engine.report(update("engine-1", [b"a"], tenant_id="acme")).accepted
    assert refused(lambda: engine.report(update("engine-2", [b"a"], tenant_id="acme"))) == (
        grpc.StatusCode.PERMISSION_DENIED
    )
    also_named = tls.client(authority.credentials(authority.issue("gateway")))
    assert refused(lambda: also_named.report(update("engine-1", tenant_id="acme"))) == grpc.StatusCode.UNAUTHENTICATED
    gateway = tls.client(authority.credentials(authority.issue("gateway", named=False)))
    assert replicas(gateway.lookup("acme", **chain([b"a"]))) == ["engine-1"]
    assert gateway.lookup("other", **chain([b"a"])).reason_code == Lookup.NO_HINT
    assert refused(lambda: gateway.report(update("engine-1", tenant_id="acme"))) == grpc.StatusCode.PERMISSION_DENIED
    stranger = tls.client(authority.credentials(authority.issue("stranger")))
    assert refused(lambda: stranger.report(update("engine-1", tenant_id="acme"))) == grpc.StatusCode.UNAUTHENTICATED


def test_all_calls_are_served_over_tls_on_the_one_port(tls: Served, authority: Authority) -> None:
    engine = tls.client(authority.credentials(authority.issue("engine", "spiffe://fleet/engine")))
    events = engine.events()
    until(lambda: tls.metric('terraflow_hints_streams_open{stream="events"}') == 1)
    assert engine.report(update("engine-1", [b"tls"], tenant_id="acme", stats=pb.ReplicaStats(hit_rate=0.5))).accepted
    assert next(events).prefix_hash == b"tls"
    events.cancel()
    assert engine.lookup("acme", **chain([b"tls"])).reason_code == Lookup.PREFIX_MATCH
    assert engine.pd_route(tenant_id="acme", model_id="m", prefix_hash=b"a").reason_code == Lookup.NO_HINT
    assert engine.render("acme/none", "acme").reason_code == Render.TEMPLATE_NOT_FOUND
    assert [row.replica_id for row in engine.state("acme").replicas] == ["engine-1"]
    of = {"tenant_id": "acme", "model_id": "m", "replica_id": "engine-1"}
    assert engine.event(pb.CacheEvent.PREFIX_EVICTED, prefix_hash=b"tls", **of).accepted
    metrics = engine.metrics("inferencecache_server_up")
    assert next(metrics).value == 1.0
    metrics.cancel()
    health = health_pb2_grpc.HealthStub(engine.channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    services = ProtoReflectionDescriptorDatabase(engine.channel).get_services()
    assert "inferencecache.v1alpha1.InferenceCache" in services


def test_readers_need_no_client_certificate(tls: Served, authority: Authority) -> None:
    client = tls.client(authority.credentials())
    assert client.lookup("nobody", **chain([b"a"])).reason_code in (Lookup.NO_HINT, Lookup.UNKNOWN_TENANT)
    assert client.state("nobody").summary.total_prefixes == 0


def test_another_authoritys_certificate_and_plaintext_get_nowhere(
    tls: Served, authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path).issue("engine", "spiffe://fleet/engine")
    client = tls.client(authority.credentials(forged))
    assert refused(lambda: client.report(update("engine-1", tenant_id="acme"))) == grpc.StatusCode.UNAVAILABLE
    assert refused(lambda: tls.client().lookup("acme")) == grpc.StatusCode.UNAVAILABLE


def test_connections_without_a_certificate_where_one_is_required(folder: Path, authority: Authority) -> None:
    served = folder / "required"
    served.mkdir()
    cert, key = authority.issue("server2")
    settings = {"tls_cert_file": cert, "tls_key_file": key, "client_ca_file": authority.file}
    with Served(served, client_cert_required=True, **settings) as running:
        assert refused(lambda: running.client(authority.credentials()).lookup()) == grpc.StatusCode.UNAVAILABLE
        known = running.client(authority.credentials(authority.issue("anybody")))
        assert known.lookup(**chain([b"a"])).reason_code == Lookup.NO_HINT
