"""`POST /v1/requests/{id}/feedback`: what an application says of an answer is in its evidence for good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import CANARY, Caller, until
from tests.harness.checks import Checks
from tests.harness.upstreams import DONE, END, USED, Gate, Upstreams, flow, text

COMMAND = Path(sys.executable).with_name("terraflow")


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one")), purpose("theirs", sim("two"), tenant="umbra")))


def asked(site: Site) -> str:
    return str(site.caller.ask().headers["x-terraflow-request-id"])


def say(caller: Caller, request_id: str, said: Any) -> httpx2.Response:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return caller.post(body, path=f"/requests/{request_id}/feedback")


def test_feedback_is_in_the_evidence(site: Site) -> None:
    request_id = asked(site)
    assert site.caller.evidence(request_id)["feedback"] is None
    response = say(site.caller, request_id, {"rating": "down", "score": 20, "labels": ["slow", "incorrect"]})
    assert response.status_code == 200
    body = response.json()
    assert body["time"].endswith("Z")
    said = {"rating": "down", "score": 20, "labels": ["incorrect", "slow"]}
    assert body == {"object": "feedback", "request_id": request_id, "time": body["time"], **said}
    assert response.headers["x-terraflow-request-id"] != request_id
    assert "x-terraflow-reason" not in response.headers
    found = site.caller.evidence(request_id)
    assert [part["kind"] for part in found["records"]] == ["intent", "outcome", "feedback"]
    assert found["feedback"] == {
        "kind": "feedback",
        "schema": 1,
        "request_id": request_id,
        "tenant": "acme",
        "application": "web",
        "time": body["time"],
        **said,
    }


def test_the_same_again_is_recorded_once_and_the_last_word_counts(site: Site) -> None:
    request_id = asked(site)
    first = say(site.caller, request_id, {"labels": ["correct", "helpful"]})
    again = say(site.caller, request_id, {"labels": ["helpful", "correct"], "rating": None})
    assert again.json() == first.json()
    say(site.caller, request_id, {"rating": "up"})
    found = site.caller.evidence(request_id)
    assert [part["kind"] for part in found["records"]] == ["intent", "outcome", "feedback", "feedback"]
    assert (found["feedback"]["rating"], "labels" in found["feedback"]) == ("up", False)


def test_a_refused_request_can_be_spoken_of(site: Site, checks: Checks) -> None:
    refused = site.caller.ask("nothing")
    checks.refused(site.caller, refused, Governed.UNKNOWN_WORKLOAD, recorded=False)
    assert say(site.caller, refused.headers["x-terraflow-request-id"], {"score": 0}).json()["score"] == 0


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "body"),
        ([], "body"),
        (b"", "body"),
        (b'{"score": 1, "score": 2}', "body"),
        (b'{"score": NaN}', "body"),
        ({"labels": []}, "body"),
        ({"rating": None}, "body"),
        ({"rating": "up", "comment": CANARY}, "body"),
        ({"rating": CANARY}, "rating"),
        ({"rating": 1}, "rating"),
        ({"rating": ["up"]}, "rating"),
        ({"score": 101}, "score"),
        ({"score": -1}, "score"),
        ({"score": 0.5}, "score"),
        ({"score": True}, "score"),
        ({"score": "5"}, "score"),
        ({"labels": [CANARY]}, "labels"),
        ({"labels": "slow"}, "labels"),
        ({"labels": ["slow", "slow"]}, "labels"),
        ({"labels": [["slow"]]}, "labels"),
        ({"labels": ["slow"] * 100}, "body"),
        (b" " * 5_000, "body"),
    ],
)
def test_what_is_no_feedback(said: Any, field: str, site: Site, checks: Checks) -> None:
    request_id = asked(site)
    checks.ungoverned(say(site.caller, request_id, said), ModelApi.INVALID_REQUEST, field=field)
    assert site.caller.evidence(request_id)["feedback"] is None


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("X-TerraFlow-Data-Class", ModelApi.INVALID_DATA_CLASS),
        ("X-TerraFlow-Sensitive-Types", ModelApi.INVALID_SENSITIVE_TYPE),
        ("X-TerraFlow-Deadline-Ms", ModelApi.INVALID_DEADLINE),
    ],
)
def test_a_declaration_that_is_none(header: str, code: ModelApi, site: Site, checks: Checks) -> None:
    path = f"/requests/req_{'0' * 32}/feedback"
    checks.ungoverned(site.caller.post({"rating": "up"}, {header: CANARY}, path), code)


def test_headers_are_read_as_everywhere(site: Site, checks: Checks) -> None:
    path = f"/requests/{asked(site)}/feedback"
    for name, value in (("Content-Type", "text/plain"), ("X-TerraFlow-Mood", "good")):
        field = "content-type" if name == "Content-Type" else "headers"
        checks.ungoverned(site.caller.post(b"{}", {name: value}, path), ModelApi.INVALID_REQUEST, field=field)


def test_a_request_keeps_sixteen_feedbacks(site: Site, checks: Checks) -> None:
    request_id = asked(site)
    for score in range(16):
        assert say(site.caller, request_id, {"score": score}).status_code == 200
    checks.ungoverned(say(site.caller, request_id, {"score": 99}), ModelApi.INVALID_REQUEST, field="body")
    assert say(site.caller, request_id, {"score": 15}).status_code == 200
    found = site.caller.evidence(request_id)
    assert (len(found["records"]), found["feedback"]["score"]) == (18, 15)


def test_sixteen_are_sixteen_when_many_speak_at_once(site: Site) -> None:
    request_id = asked(site)
    callers = [site.caller_with(site.caller.api_key) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        said = threads.map(lambda score: say(callers[score % 8], request_id, {"score": score}).status_code, range(40))
        assert Counter(said) == {200: 16, 400: 24}
    assert len(site.caller.evidence(request_id)["records"]) == 2 + 16


@pytest.mark.parametrize("named", ["req_" + "0" * 32, CANARY, "req_0", "*"])
def test_feedback_on_nothing(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(say(site.caller, named, {"rating": "up"}), ModelApi.REQUEST_NOT_FOUND)


def test_nobody_else_speaks_of_a_request(site: Site, checks: Checks) -> None:
    request_id = asked(site)
    for other in (site.folder.issue_key("umbra"), site.folder.issue_key("acme", "another")):
        refused = say(site.caller_with(other), request_id, {"rating": "up"})
        checks.ungoverned(refused, ModelApi.REQUEST_NOT_FOUND)
    assert site.caller.evidence(request_id)["feedback"] is None


def test_a_request_that_has_not_ended(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(flow(text("Cert"), gate, END, USED, DONE))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    with site.caller.stream("plain") as streamed:
        next(streamed.events())
        early = say(site.caller, streamed.request_id, {"rating": "up"})
        checks.ungoverned(early, ModelApi.REQUEST_NOT_FOUND)
        gate.open()
        streamed.rest()
    assert say(site.caller, streamed.request_id, {"rating": "up"}).status_code == 200


def test_the_verifier_accepts_feedback(launch: Launch, tmp_path: Path) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    request_id = asked(site)
    for score in (1, 2):
        say(site.caller, request_id, {"score": score})
    answer = tmp_path / "answer.json"

    def proven() -> bool:
        answer.write_bytes(site.caller.get(f"/evidence/{request_id}").content)
        return all(part["inclusion_proof"] for part in json.loads(answer.read_bytes())["records"])

    until(proven)
    data = ["--data", str(site.folder.path)]
    key = _run("evidence", "key", "--tenant", "acme", *data).stdout.strip()
    verified = json.loads(_run("verify", str(answer), "--key", key, "--json").stdout)
    assert verified["kinds"] == ["intent", "outcome", "feedback", "feedback"]
    shown = json.loads(answer.read_bytes())
    for wrong in (shown["records"][2]["record"], None):
        answer.write_text(json.dumps(shown | {"feedback": wrong}))
        assert _run("verify", str(answer), "--key", key).returncode == 1
    answer.write_text(json.dumps(shown | {"records": [shown["records"][at] for at in (0, 1, 3, 2)]}))
    assert _run("verify", str(answer), "--key", key).returncode == 1
    out = tmp_path / "export"
    assert _run("evidence", "export", "--tenant", "acme", "--out", str(out), *data).returncode == 0
    report = json.loads(_run("verify", str(out), "--key", key, "--json").stdout)
    assert (report["intents"], report["outcomes"], report["feedbacks"], report["open"]) == (1, 1, 2, 0)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False)
