"""A service's life: restarted, killed, misconfigured, and fed by strangers."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest

from bench.process_cost import cost
from terraflow.core.reasons import Lookup
from terraflow.hints.wire import inferencecache_pb2 as pb
from tests.hints.blackbox.served import Client, Served, chain, replicas, until, update
from tests.hints.http2.raw import PREFACE, settings


def asked(client: Client) -> tuple[str, list[str]]:
    answer = client.lookup(**chain([b"a", b"b"]))
    return answer.reason_code, replicas(answer)


def test_a_restart_keeps_the_index_as_old_as_it_is(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True, ttl_s=30)
    with served:
        client = served.client()
        client.report(
            update("r", [b"a", b"b"], stats=pb.ReplicaStats(hit_rate=0.5, client_version="v")), update("q", [b"z"])
        )
        before = client.lookup(**chain([b"a", b"b"])).replica_scores[0]
        assert served.stop() == 0
        time.sleep(1.5)
        served.start()
        client = served.client()
        after = client.lookup(**chain([b"a", b"b"])).replica_scores[0]
        assert (after.replica_id, after.matched_tokens) == ("r", 128)
        # At least the second and a half of the pause, of thirty.
        assert before.estimated_cache_hit_prob - after.estimated_cache_hit_prob >= 0.05
        assert [row.client_version for row in client.state().replicas] == ["v"]
        assert client.state().summary.total_prefixes == 3


def test_a_kill_loses_what_came_after_the_last_snapshot_and_nothing_else(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True, snapshot_interval_s=0.2)
    with served:
        served.client().report(update("r", [b"a", b"b"]), update("q", [b"z"]))
        written = time.time()
        path = served.data / "index.snapshot"
        until(lambda: path.exists() and path.stat().st_mtime > written + 0.3)
        served.stop(signal.SIGKILL)
        served.start()
        assert asked(served.client()) == (Lookup.PREFIX_MATCH, ["r"])


def test_a_kill_while_snapshots_are_written_leaves_a_whole_one(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True, snapshot_interval_s=0.01)
    with served:
        path = served.data / "index.snapshot"
        for turn in range(3):
            served.client().report(
                update("r", [b"a", b"b"]),
                update("q", [b"%d/%d" % (turn, i) for i in range(5_000)]),
            )
            size = 100_000 * (turn + 1)
            until(lambda size=size: path.exists() and path.stat().st_size > size)  # type: ignore[misc]
            served.stop(signal.SIGKILL)
            served.start()
            assert asked(served.client()) == (Lookup.PREFIX_MATCH, ["r"])
    assert "ignored" not in served.errors()


def test_a_damaged_snapshot_is_said_and_ignored(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True)
    with served:
        served.client().report(update("r", [b"a", b"b"]), update("q", [b"z"]))
        served.stop()
        path = served.data / "index.snapshot"
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        served.start()
        assert asked(served.client()) == (Lookup.NO_HINT, [])
        assert "is ignored" in served.errors()


def test_two_services_do_not_share_a_folder(tmp_path: Path) -> None:
    with Served(tmp_path, insecure_producers=True) as served:
        command = [Path(sys.executable).with_name("terraflow"), "hints", "serve", "--config", served.file]
        second = subprocess.run(command, env=served.environment, capture_output=True, text=True, timeout=30)
        assert second.returncode == 1
        assert "another hint service runs on" in second.stderr
        served.stop(signal.SIGKILL)
        served.start()


def test_without_a_snapshot_nothing_is_written(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True, snapshot=False)
    with served:
        served.client().report(update("r", [b"a"]))
    assert sorted(os.listdir(served.data)) == ["internal.token", "lock"]


def test_calls_under_way_end_before_the_service_does(tmp_path: Path) -> None:
    served = Served(tmp_path, insecure_producers=True)
    with served:
        client = served.client()
        going = threading.Event()

        def updates():  # type: ignore[no-untyped-def]
            yield update("r", [b"a", b"b"])
            going.wait(10)
            yield update("q", [b"z"])

        acknowledged = client.stub.ReportCacheState.future(updates(), timeout=20)
        until(lambda: client.state().summary.total_prefixes == 2)
        stopping = threading.Thread(target=lambda: os.kill(served.pid, signal.SIGTERM))
        stopping.start()
        time.sleep(0.3)
        going.set()
        assert acknowledged.result().accepted
        stopping.join()
        assert served.stop() == 0
        served.start()
        assert served.client().state().summary.total_prefixes == 3


@pytest.mark.parametrize(
    ("toml", "settings", "code", "said"),
    [
        ("bind_prot = 1", {}, 2, "did you mean bind_port"),
        ("", {"policy_dir": "/nowhere"}, 1, "policy_dir"),
        ("", {"token_keys": "/nowhere.pem"}, 1, "token_keys"),
        ("", {"tls_cert_file": "/nowhere", "tls_key_file": "/nowhere"}, 1, "tls_cert_file"),
        ("", {"namespace_key_file": "/nowhere"}, 1, "namespace_key_file"),
        ("[tokenizers]\nm = '/nowhere'", {}, 1, "tokenizers"),
        ("", {"bind_host": "0.0.0.0"}, 2, "insecure_plaintext"),
        ("", {"bind_host": "203.0.113.7", "insecure_plaintext": True}, 1, "cannot listen on 203.0.113.7"),
        ("[[feeds]]\nreplica = 'r'", {}, 2, "feeds"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(
    tmp_path: Path, toml: str, settings: dict[str, object], code: int, said: str
) -> None:
    served = Served(tmp_path, toml, **settings)
    command = [Path(sys.executable).with_name("terraflow"), "hints", "serve", "--config", served.file]
    ended = subprocess.run(command, env=served.environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == code
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout == ""


# Strangers


def test_hostile_reports_change_nothing_of_others(served: Served) -> None:
    client = served.client()
    client.report(update("good", [b"a", b"b"], tenant_id="quiet"), update("other", [b"z"], tenant_id="quiet"))
    before = client.lookup("quiet", **chain([b"a", b"b"]))
    nan = pb.ReplicaStats(hit_rate=float("nan"), pressure=float("inf"), cache_memory_bytes=-(2**63))
    many = [b"%x" % i for i in range(60_000)]
    client.report(
        update("x" * 70_000, [b"a"], tenant_id="loud"),
        update("", [b"a"], tenant_id="loud"),
        update("r", [b"a", b""], [b""], tenant_id="loud"),
        update("r", [b"y" * 70_000], tenant_id="loud"),
        update("r", many, tokens=2**31 - 1, tenant_id="loud"),
        update("r", [b"a"], tokens=-(2**31), tenant_id="loud", timestamp_us=2**62),
        update("r", [b"b"], tenant_id="loud", timestamp_us=-(2**62), stats=nan),
        pb.CacheStateUpdate(),
    )
    answer = client.lookup("loud", block_hashes=many[:3], block_token_counts=[2**31 - 1] * 3)
    assert all(row.matched_tokens >= 0 for row in answer.replica_scores)
    (row,) = client.state("loud").replicas
    assert (row.hit_rate, row.pressure) == (0.0, 0.0)
    after = client.lookup("quiet", **chain([b"a", b"b"]))
    assert (
        (after.reason_code, replicas(after))
        == (before.reason_code, replicas(before))
        == (
            Lookup.PREFIX_MATCH,
            ["good"],
        )
    )
    for cause in ("oversize", "incomplete", "empty_hash"):
        assert served.metric(f'terraflow_hints_dropped_total{{cause="{cause}"}}') > 0


def test_a_message_above_the_limit_ends_its_call_only(served: Served) -> None:
    client = served.client()
    client.report(update("r", [b"a"], tenant_id="small"), update("q", [b"z"], tenant_id="small"))
    with pytest.raises(grpc.RpcError) as failed:
        client.report(update("r", [b"%09d" % i for i in range(500_000)], tenant_id="small"))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.lookup("small", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH


def test_lookups_are_answered_while_a_large_report_comes_in(served: Served) -> None:
    writer, reader = served.client(), served.client()
    reader.report(update("r", [b"a"], tenant_id="calm"), update("q", [b"z"], tenant_id="calm"))
    updates = [update("r", [b"%d/%d" % (i, j) for j in range(50_000)], tenant_id="flood") for i in range(5)]
    writing = writer.stub.ReportCacheState.future(iter(updates), timeout=30)
    slowest = 0.0
    while not writing.done():
        begun = time.monotonic()
        assert reader.lookup("calm", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH
        slowest = max(slowest, time.monotonic() - begun)
    assert writing.result().accepted
    # A bound for a busy machine; the benchmark has the real one.
    assert slowest < 1.0


def test_more_streams_than_there_may_be_are_refused(served: Served) -> None:
    clients = [served.client() for _ in range(4)]
    streams = [client.events(30, tenant_id="many") for client in clients for _ in range(25)]
    until(lambda: sum(stream.done() for stream in streams) >= 36)
    until(lambda: served.metric('terraflow_hints_streams_open{stream="events"}') == 64)
    assert [stream.code() for stream in streams if stream.done()] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 36
    for stream in streams:
        stream.cancel()
    until(lambda: served.metric('terraflow_hints_streams_open{stream="events"}') == 0)


def test_models_in_metrics_are_bounded(served: Served) -> None:
    client = served.client()
    for number in range(530):
        client.lookup("t", f"model-{number}")
    page = served.http("/metrics")[1].decode()
    models = {
        line.split('model="')[1].split('"')[0]
        for line in page.splitlines()
        if "calls_total{" in line and 'model="' in line
    }
    assert len(models) <= 513
    assert "other" in models


def test_when_there_is_no_descriptor_left_accepting_rests_and_those_that_are_there_are_served(tmp_path: Path) -> None:
    with Served(tmp_path, insecure_producers=True) as served:
        client = served.client()
        asked(client)
        host, _, port = served.at["grpc"].rpartition(":")
        before = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        # What is open stays so; nothing more is opened.
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.create_connection((host, int(port)), timeout=10) as waiting:
            waiting.sendall(PREFACE + settings())
            began = cost(served.pid).cpu_s
            waiting.settimeout(1.5)
            with pytest.raises(TimeoutError):
                waiting.recv(9)
            assert cost(served.pid).cpu_s - began < 0.7, "it asks again and again"
            asked(client)
            resource.prlimit(served.pid, resource.RLIMIT_NOFILE, before)
            waiting.settimeout(10)
            assert len(waiting.recv(9)) == 9
