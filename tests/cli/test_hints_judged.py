"""What the doctor says of replicas, feeds and tenants is of now: in force, connected, and of the last ten minutes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from terraflow.app.hints_doctor import examine
from terraflow.hints.service.overview import Overview, ReplicaRow
from terraflow.hints.service.recent import EVERY_S, WINDOW_S, Recent
from tests.cli.test_data_folder import terraflow
from tests.cli.test_hints_doctor import TENANT, certificate, nobody, patient, report, service, standing_in

POSTED = {"version": 3, "tenants": [{"tenantID": "acme", "maxIndexEntries": 3}]}
LABELS = 'tenant_id="acme",model="m",replica="{}"'


async def said(who, code: str) -> list[str]:
    return [finding.message for finding in (await examine(who)).findings if finding.code == code]


async def test_a_tenant_is_judged_by_the_quota_that_is_in_force(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "a.yaml").write_text(TENANT.replace("2", "200000"))
    async with service(tmp_path, policy_dir=str(manifests)) as running:
        for block in range(3):
            report(running, "r", b"%d" % block)
        who = patient(running, manifests=manifests)
        assert await said(who, "CT002") == ["3 of 200000 blocks"]
        await running.policies.post(msgspec.json.encode(POSTED))
        assert await said(who, "CT001") == ["3 of 3 blocks, 0 lost to its quota in the last ten minutes"]
        (shown,) = await said(who, "PL002")
        assert shown.startswith("in force as posted, since ") and shown.endswith(": cache policies 0, quotas 1")
        report(running, "r", b"more")
        assert await said(who, "CT001") == ["3 of 3 blocks, 1 lost to its quota in the last ten minutes"]
        # Raised, and the loss is ten minutes old: nothing is left to warn of.
        await running.policies.post(msgspec.json.encode(POSTED).replace(b":3}]", b":9}]"))
        assert await said(who, "CT001") == ["3 of 9 blocks, 1 lost to its quota in the last ten minutes"]
        late = running._clock.monotonic() + WINDOW_S + 2 * EVERY_S
        running._recent._now = lambda: late
        await running._recent.take()
        late += WINDOW_S
        await running._recent.take()
        assert await said(who, "CT001") == []
        assert await said(who, "CT002") == ["3 of 9 blocks"]


async def test_growth_is_of_the_last_ten_minutes() -> None:
    now, counts = [0.0], {("faults", "t", "r"): 5}
    recent = Recent(lambda: dict(counts), lambda: now[0])
    assert recent.growth() == {("faults", "t", "r"): 5}
    for _ in range(int(WINDOW_S / EVERY_S)):
        now[0] += EVERY_S
        await recent.take()
    counts["faults", "t", "r"] = 6
    now[0] += EVERY_S
    await recent.take()
    assert recent.growth() == {("faults", "t", "r"): 1}
    assert [sample.value for family in recent.families() for sample in family.samples] == [1]
    for _ in range(20):
        now[0] += EVERY_S
        await recent.take()
    assert recent.growth() == {}
    assert len(recent._samples) <= WINDOW_S / EVERY_S + 1


def row(name: str) -> ReplicaRow:
    heard = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return ReplicaRow(
        replica_id=name, tenant="acme", cache_memory_bytes=0, hit_rate=0.0, pressure=0.0, last_update=heard,
        prefix_count=1, last_event_at=heard, stats_reported=True, t2_hit_tokens=0, t2_query_tokens=0,
    )  # fmt: skip


async def test_an_engine_that_is_lost_is_not_well_and_each_lost_stream_has_a_step_of_its_own() -> None:
    names = ("well", "dead", "asks", "asks-not", "many/dp1")
    rows = [row(name) for name in names]
    page = msgspec.json.encode(Overview(replicas=rows, tenants=[], total_prefixes=5, hot_prefixes=0))
    lines = ["# TYPE terraflow_hints_feed_connected gauge"]
    lines += [f"terraflow_hints_feed_connected{{{LABELS.format(name)}}} {int(name != 'dead')}" for name in names[:4]]
    lines += [f"terraflow_hints_feed_connected{{{LABELS.format('many')}}} 0"]
    lines += ["# TYPE terraflow_hints_feed_replayable gauge"]
    lines += [f"terraflow_hints_feed_replayable{{{LABELS.format('asks')}}} 1"]
    lines += ["# TYPE terraflow_hints_feed_state gauge"]
    states = {name: "in sequence" if name == "well" else "stale" for name in names}
    lines += [f'terraflow_hints_feed_state{{{LABELS.format(name)},state="{at}"}} 1' for name, at in states.items()]
    lines += ["# TYPE terraflow_hints_feed_faults_total counter"]
    lines += [f"terraflow_hints_feed_faults_total{{{LABELS.format('well')}}} 9"]
    lines += ["# TYPE terraflow_hints_recent gauge"]
    lines += [f'terraflow_hints_recent{{what="undecodable",{LABELS.format("asks").replace(",model=", ",m=")}}} 2']
    answers = {
        "GET /healthz": (200, b""),
        "GET /readyz": (200, b""),
        "GET /metrics": (200, ("\n".join(lines) + "\n").encode()),
        "GET /snapshot": (200, page),
    }
    async with standing_in(answers) as where:
        findings = (await examine(nobody(public=where, internal=where))).findings
    assert [finding.resource for finding in findings if finding.code == "FD003"] == ["replica/acme/well"]
    steps = {finding.resource: finding.next for finding in findings if finding.code == "FD007"}
    assert steps["feed/dead"].startswith("See FD006") and steps["feed/many/dp1"].startswith("See FD006")
    assert steps["feed/asks"].startswith("Nothing at once") and "Give the feed" not in steps["feed/asks"]
    assert steps["feed/asks-not"].startswith("Give the feed the engine's replay endpoint")
    troubles = [(finding.resource, finding.message) for finding in findings if finding.code == "FD005"]
    assert troubles == [("feed/asks", "2 batches that could not be decoded in the last ten minutes")]


async def test_plaintext_to_a_port_with_tls_is_told_what_to_say(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "hints.internal", 5)
    async with service(tmp_path, tls_cert_file=str(cert), tls_key_file=str(key)) as running:
        findings = (await examine(patient(running, public="", internal=""))).findings
        assert [finding.code for finding in findings] == ["TL001", "SV001"]
        assert findings[1].next.startswith("If it speaks TLS, say so with --tls")
    # Nobody at all: it is not the certificate's fault.
    (finding,) = (await examine(nobody(grpc="127.0.0.1:1", tls=True, ca=cert))).findings
    assert finding.code == "SV001" and finding.next.startswith("Start it with")


@pytest.mark.parametrize("noisy", [["--tls"], ["--plaintext"]])
async def test_the_data_folder_has_the_token_and_grpc_adds_no_lines(tmp_path: Path, noisy: list[str]) -> None:
    cert, key = certificate(tmp_path, "hints.internal", 5)
    async with service(tmp_path / "data", tls_cert_file=str(cert), tls_key_file=str(key)) as running:
        who = patient(running)
        asked = [
            "hints",
            "doctor",
            "--endpoint",
            who.grpc,
            "--public",
            who.public,
            "--internal",
            who.internal,
            "--json",
        ]
        done = await terraflow(*asked, *noisy, "--data", str(tmp_path / "data"), code=2)
        assert done.stderr == ""
        found = {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}
        assert "SN004" in found and "SN005" not in found
        assert "t2 skipped (no service of this kind has a second tier to ask)" in found["PB002"]["message"]
