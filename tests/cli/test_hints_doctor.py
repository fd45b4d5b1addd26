"""`terraflow hints doctor`: every finding that it can make, its next step, its three forms and its exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import grpc_health.v1.health
import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from terraflow.app.hints import RunningHints, open_hints
from terraflow.app.hints_doctor import BadFiles, Patient, examine
from terraflow.app.hints_findings import KNOWN, Severity
from terraflow.app.hints_judged import FEED_TROUBLES
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.runtime import SystemClock
from terraflow.hints.feed import mapping, stream
from terraflow.hints.policy.policies import Policies
from terraflow.hints.service import recent
from terraflow.hints.service.http import Listener, Routes
from terraflow.hints.service.overview import Overview, ReplicaRow
from terraflow.hints.words import Entry, Report, Stats
from tests.cli.test_data_folder import terraflow

NOBODY = "127.0.0.1:1"
POLICY = """apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: p, namespace: acme}
spec: {}
"""
TENANT = POLICY.replace("CachePolicy", "CacheTenant").replace("{}", "{tenantID: acme, quota: {maxIndexEntries: 2}}")
TOPOLOGY = POLICY.replace("CachePolicy", "PDTopology")


@asynccontextmanager
async def service(folder: Path, **settings: Any) -> AsyncIterator[RunningHints]:
    given = {"bind_port": 0, "http_port": 0, "internal_port": 0, "snapshot": False, **settings}
    running = await open_hints(HintsSettings(data_dir=str(folder), **given), SystemClock())
    try:
        yield running
    finally:
        await running.stop()


def patient(running: RunningHints, **changes: Any) -> Patient:
    places = {name: f"127.0.0.1:{port}" for name, port in running.ports.items()}
    token = running.settings.token_path().read_text().strip()
    return Patient(
        **{"grpc": places["grpc"], "public": places["http"], "internal": places["internal"], "token": token, **changes}
    )


def nobody(**changes: Any) -> Patient:
    return Patient(**{"grpc": "", "public": "", "internal": "", "token": None, **changes})


async def codes(who: Patient) -> list[str]:
    return [finding.code for finding in (await examine(who)).findings]


def report(running: RunningHints, replica: str, *blocks: bytes, stats: Stats | None = None) -> None:
    entries = tuple(Entry("", [block], [64], 1) for block in blocks)
    running.live.ingest(Report(replica=replica, model="m", tenant="acme", scheme="s", entries=entries, stats=stats))


@asynccontextmanager
async def standing_in(answers: dict[str, tuple[int, bytes]]) -> AsyncIterator[str]:
    """Something that answers as it is told, by method and path."""

    def answer(status: int, body: bytes) -> Callable[[web.BaseRequest], Any]:
        async def respond(_request: web.BaseRequest) -> web.Response:
            return web.Response(status=status, body=body)

        return respond

    routes: dict[str, dict[str, Any]] = {}
    for name, (status, body) in answers.items():
        method, path = name.split(" ")
        routes.setdefault(path, {})[method] = answer(status, body)
    told: Routes = routes
    listener = Listener(told, host="127.0.0.1", port=0)
    try:
        yield f"127.0.0.1:{await listener.start()}"
    finally:
        await listener.stop()


async def test_a_service_that_is_well_and_fed(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        report(running, "r1", b"1", stats=Stats(pressure=0.5))
        checkup = await examine(patient(running))
        assert [finding.code for finding in checkup.findings] == [
            "TL001", "SV003", "HL003", "SN004", "FD003", "CT002", "PL002", "PB002",
        ]  # fmt: skip
        assert checkup.summary.exit_code == 0
        assert running.live.index.entries() == 1


async def test_a_service_that_nobody_feeds_and_one_that_hears_no_load(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        checkup = await examine(patient(running))
        assert "FD001" in [finding.code for finding in checkup.findings]
        assert checkup.summary.exit_code == 1
        report(running, "r1", b"1")
        assert "FD004" in await codes(patient(running))


async def test_a_service_that_is_not_there() -> None:
    checkup = await examine(nobody(grpc=NOBODY, public=NOBODY, internal=NOBODY))
    assert [finding.code for finding in checkup.findings] == ["TL001", "SV001", "HL001", "SN001"]
    assert checkup.summary.exit_code == 2
    assert all(finding.next for finding in checkup.findings)


async def test_a_service_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        where = f"127.0.0.1:{deaf.getsockname()[1]}"
        found = await codes(nobody(grpc=where, public=where, internal=where, timeout_s=0.2))
    assert found == ["TL001", "SV001", "HL001", "SN001"]


async def test_a_service_that_is_stopping(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        running.ready = False
        assert "HL002" in await codes(patient(running))


async def test_a_service_whose_health_says_no() -> None:
    server = grpc.aio.server()
    health = grpc_health.v1.health.aio.HealthServicer()
    await health.set("", grpc_health.v1.health_pb2.HealthCheckResponse.NOT_SERVING)
    grpc_health.v1.health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await codes(nobody(grpc=f"127.0.0.1:{port}")) == ["TL001", "SV002"]
    finally:
        await server.stop(None)


async def test_tokens(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        for token in (None, "wrong"):
            found = await codes(patient(running, token=token))
            assert found[-1] == "SN005"
            assert "PB002" not in found


async def test_what_else_may_answer() -> None:
    page = msgspec.json.encode(Overview(replicas=[], tenants=[], total_prefixes=0, hot_prefixes=0))
    for answers, expected in (
        ({}, ["SN001"]),
        ({"GET /snapshot": (500, b"")}, ["SN001"]),
        ({"GET /snapshot": (200, b"<html>")}, ["SN002"]),
        ({"GET /snapshot": (200, page)}, ["SN004", "SN003", "FD001", "PL001", "PB001"]),
        (
            {"GET /snapshot": (200, page), "GET /policy": (503, b""), "POST /probe": (503, b"")},
            ["SN004", "SN003", "FD001", "PL003", "PB003"],
        ),
        (
            {"GET /snapshot": (200, page), "POST /policy": (204, b""), "POST /probe": (200, b"[]")},
            ["SN004", "SN003", "FD001", "PL002", "PB003"],
        ),
    ):
        async with standing_in(answers) as where:
            assert await codes(nobody(internal=where)) == expected


async def test_a_probe_that_fails(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        running.live.adopt(Policies(quotas={"inferencecache.io/probe": 0}))
        checkup = await examine(patient(running))
    failed = [finding for finding in checkup.findings if finding.code == "PB004"]
    assert failed[0].message.startswith("ingest: ")


async def test_a_replica_that_fell_silent() -> None:
    long_ago = (datetime.now(UTC) - timedelta(minutes=30)).isoformat().replace("+00:00", "Z")
    never = "0001-01-01T00:00:00Z"
    rows = [
        ReplicaRow(
            replica_id=name,
            tenant="acme",
            cache_memory_bytes=0,
            hit_rate=0.0,
            pressure=0.0,
            last_update=at,
            prefix_count=1,
            last_event_at=never,
            stats_reported=True,
            t2_hit_tokens=0,
            t2_query_tokens=0,
        )
        for name, at in (("a", long_ago), ("b", never))
    ]
    page = msgspec.json.encode(Overview(replicas=rows, tenants=[], total_prefixes=2, hot_prefixes=0))
    async with standing_in({"GET /snapshot": (200, page)}) as where:
        checkup = await examine(nobody(internal=where))
    silent = [finding for finding in checkup.findings if finding.code == "FD002"]
    assert [finding.resource for finding in silent] == ["replica/acme/a", "replica/acme/b"]
    assert [finding.message.rpartition("of it ")[2] for finding in silent] == [
        "for 30 minutes",
        "since the service started",
    ]


async def test_troubles_of_feeds() -> None:
    page = msgspec.json.encode(Overview(replicas=[], tenants=[], total_prefixes=0, hot_prefixes=0))
    labels = 'tenant_id="acme",model="m",replica="{}"'
    one, two = labels.format("vllm-0"), labels.format("vllm-1")
    exposition = f"""# TYPE terraflow_hints_feed_undecodable_total counter
terraflow_hints_feed_undecodable_total{{{one}}} 3
terraflow_hints_feed_undecodable_total{{{two}}} 0
# TYPE terraflow_hints_feed_batches_total counter
terraflow_hints_feed_batches_total{{{one}}} 8
# TYPE terraflow_hints_feed_connected gauge
terraflow_hints_feed_connected{{{one}}} 1
terraflow_hints_feed_connected{{{two}}} 0
# TYPE terraflow_hints_feed_state gauge
terraflow_hints_feed_state{{replica="vllm-0",state="stale"}} 1
terraflow_hints_feed_state{{replica="vllm-1",state="in sequence"}} 1
"""
    answers = {
        "GET /healthz": (200, b""),
        "GET /readyz": (200, b""),
        "GET /metrics": (200, exposition.encode()),
        "GET /snapshot": (200, page),
    }
    async with standing_in(answers) as where:
        checkup = await examine(nobody(public=where, internal=where))
    told = [(finding.code, finding.resource) for finding in checkup.findings if finding.check == "feeds"]
    assert told[1:] == [("FD006", "feed/vllm-1"), ("FD007", "feed/vllm-0"), ("FD005", "feed/vllm-0")]
    assert "3 batches that could not be decoded" in [finding.message for finding in checkup.findings]


def test_the_counters_that_are_read_are_ones_that_feeds_have() -> None:
    counted = {"faults", *stream.Counters.__struct_fields__, *mapping.Counters.__struct_fields__}
    assert set(FEED_TROUBLES) == set(recent.FEED_TROUBLES) <= counted


async def test_a_tenant_at_its_quota(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(TENANT)
    async with service(tmp_path, policy_dir=str(manifests)) as running:
        report(running, "r", b"1")
        assert {"CP002", "CT002", "CP001"} <= set(await codes(patient(running, manifests=manifests)))
        report(running, "r", b"2", b"3")
        assert "CT001" in await codes(patient(running, manifests=manifests))
        # What was lost is in the metrics, for who has no manifests at hand, too.
        assert "CT001" in await codes(patient(running))


async def test_a_running_service_whose_folder_is_refused(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(TENANT)
    async with service(tmp_path, policy_dir=str(manifests)) as running:
        assert "CP006" not in await codes(patient(running))
        (manifests / "a.yaml").write_text(TENANT + "more: 1\n")
        for _ in range(200):
            await asyncio.sleep(0.05)
            if "CP006" in await codes(patient(running)):
                break
        else:
            pytest.fail("the doctor does not say so")
        assert running.live.grounds.policies.quotas == {"acme": 2}


async def test_manifests_are_linted(tmp_path: Path) -> None:
    who = nobody(manifests=tmp_path)
    assert await codes(who) == ["CP002"]
    (tmp_path / "a.yaml").write_text(TOPOLOGY)
    assert await codes(who) == ["CP002", "PD001", "PD002", "PD002"]
    whole = TOPOLOGY.replace("acme}", "acme, annotations: {inferencecache.io/hash-scheme: vllm}}").replace(
        "{}",
        "{prefillPools: [{name: p, matchLabels: {x: p}, replicas: 2}], decodePools: [{name: d, matchLabels: {x: d}}]}",
    )
    (tmp_path / "a.yaml").write_text(whole)
    assert await codes(who) == ["CP002", "PD003"]
    (tmp_path / "replicas.yaml").write_text("replicas: {r0: {x: p}, r1: {x: d}}\n")
    checkup = await examine(who)
    assert [(finding.code, finding.message) for finding in checkup.findings[1:]] == [
        ("PD002", "replicas.yaml labels 1 of 2 replicas of its pool p")
    ]
    (tmp_path / "a.yaml").write_text(POLICY.replace("{}", "{evictionTTL: x}"))
    (failed,) = (await examine(who)).findings
    assert (failed.code, failed.resource) == ("CP004", f"{tmp_path}/a.yaml:4")
    assert failed.message.startswith("spec.evictionTTL is no duration")
    assert await codes(nobody(manifests=tmp_path / "absent")) == ["CP005"]


def certificate(folder: Path, name: str, days: float) -> tuple[Path, Path]:
    """A self-signed one for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    key_file.chmod(0o600)
    return cert_file, key_file


@pytest.mark.parametrize(("days", "code"), [(365, "TL006"), (3, "TL004"), (-1, "TL003")])
async def test_certificates(tmp_path: Path, days: float, code: str) -> None:
    cert, key = certificate(tmp_path, "hints.internal", days)
    async with service(tmp_path, tls_cert_file=str(cert), tls_key_file=str(key)) as running:
        who = patient(running, tls=True, ca=cert, server_name="hints.internal", public="", internal="")
        assert await codes(who) == ([code] if days < 0 else [code, "SV003"])
        if days > 0:
            for stranger in (who._replace(ca=None), who._replace(server_name=None)):
                assert await codes(stranger) == ["TL005"]


async def test_tls_where_there_is_none(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path, "hints.internal", 5)
    async with service(tmp_path) as running:
        who = patient(running, tls=True, ca=cert, public="", internal="", timeout_s=1.0)
        (finding,) = (await examine(who)).findings
        assert finding.code == "TL005" and finding.next.startswith("Speak to it with --plaintext")
        with pytest.raises(BadFiles, match="--ca"):
            await examine(who._replace(ca=tmp_path / "absent"))


async def test_plaintext_that_is_reachable_from_outside() -> None:
    found = await codes(nobody(grpc="192.0.2.1:50051", timeout_s=0.2))
    assert found == ["TL002", "SV001"]


async def test_the_three_forms_and_the_exit_codes(tmp_path: Path) -> None:
    async with service(tmp_path / "data") as running:
        who = patient(running)
        asked = ["hints", "doctor", "--endpoint", who.grpc, "--public", who.public, "--internal", who.internal]
        asked += ["--token-file", str(running.settings.token_path())]
        done = await terraflow(*asked, code=1)
        assert re.search(r"^WARN FD001\n     no replica has .*\n     Next: Configure a feed", done.stdout, re.MULTILINE)
        assert done.stdout.endswith("0 failed, 1 to look at, 1 to know, 5 well\n")
        report(running, "r1", b"1", stats=Stats())
        table = (await terraflow(*asked, "--output", "table")).stdout.splitlines()
        assert table[0].split() == ["STATUS", "CODE", "CHECK", "RESOURCE", "MESSAGE"]
        assert len({line.index(line.split()[2]) for line in table}) == 1
        found = json.loads((await terraflow(*asked, "--json")).stdout)
        assert found["summary"] == {"ok": 7, "info": 1, "warn": 0, "fail": 0, "exitCode": 0}
        assert set(found["findings"][0]) == {"code", "status", "check", "resource", "message", "next"}
    assert (await terraflow(*asked, "-o", "json", code=2)).stdout.count('"FAIL"') == 3


async def test_a_replicas_name_neither_steers_the_terminal_nor_begins_a_line(tmp_path: Path) -> None:
    async with service(tmp_path / "data") as running:
        report(running, "r\x1b[2J\nOK", b"1", stats=Stats())
        who = patient(running)
        asked = ["hints", "doctor", "--endpoint", who.grpc, "--public", who.public, "--internal", who.internal]
        asked += ["--token-file", str(running.settings.token_path())]
        for form in ("human", "table"):
            said = (await terraflow(*asked, "--output", form)).stdout
            assert "r\\x1b[2J\\nOK" in said and all(line.isprintable() for line in said.split("\n"))


WRONG = [
    (["--offline"], "--manifests"),
    (["--endpoint", "nowhere"], "no host:port"),
    (["--internal", "::1:5"], "no host:port"),
    (["--public", "x:99999"], "no host:port"),
    (["--token-file", "/absent"], "--token-file"),
    (["--config", "/absent.toml"], "settings file"),
    (["--output", "xml"], "xml"),
    (["stray"], "stray"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
async def test_wrong_use(arguments: list[str], said: str) -> None:
    done = await terraflow("hints", "doctor", *arguments, code=2)
    assert done.stdout == ""
    assert said in done.stderr


async def test_addresses_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERRAFLOW_HINTS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TERRAFLOW_HINTS_HTTP_HOST", "0.0.0.0")
    monkeypatch.setenv("TERRAFLOW_HINTS_HTTP_PORT", "1")
    monkeypatch.setenv("TERRAFLOW_HINTS_BIND_PORT", "1")
    monkeypatch.setenv("TERRAFLOW_HINTS_INTERNAL_HOST", "::1")
    monkeypatch.setenv("TERRAFLOW_HINTS_INTERNAL_PORT", "1")
    found = json.loads((await terraflow("hints", "doctor", "--json", code=2)).stdout)["findings"]
    assert [finding["resource"] for finding in found] == ["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "[::1]:1"]


def test_the_table_of_findings() -> None:
    for code, known in KNOWN.items():
        assert re.fullmatch(r"[A-Z]{2}\d{3}", code)
        assert bool(known.next) == (known.severity is not Severity.OK), code


def test_the_page_lists_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hints" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([A-Z]{2}\d{3})` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(code, known.severity.name) for code, known in KNOWN.items()]


def test_every_finding_of_the_table_is_made_somewhere_here() -> None:
    tested = Path(__file__).read_text()
    assert [code for code in KNOWN if f'"{code}"' not in tested] == []
