"""Keys, and the reads of the model API: what a key may call, and the evidence of its requests."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY, body_of, raw_request, request_bytes
from tests.harness.checks import Checks


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one")), purpose("theirs", sim("two"), tenant="umbra")))


def test_a_key_counts_in_either_header(site: Site, checks: Checks) -> None:
    key = site.caller.api_key
    both = [f"Authorization: Bearer {key}", f"x-api-key: {key}"]
    for lines in (both[:1], both[1:], both, [both[0].replace("Bearer", "bearer")]):
        reply = raw_request(site.plane, request_bytes(lines, json.dumps(body_of()).encode()))
        assert reply is not None and reply.status == 200
        assert reply.headers["x-terraflow-reason"] == Governed.PERMITTED


def test_a_revoked_key_ends_at_once(site: Site, checks: Checks) -> None:
    caller = site.caller_with(site.folder.issue_key())
    assert caller.get("/models").status_code == 200
    site.folder.revoke(caller.api_key)
    checks.ungoverned(caller.ask(), Governed.APP_UNAUTHENTICATED, named=False)
    checks.ungoverned(caller.get("/models"), Governed.APP_UNAUTHENTICATED, named=False)


def test_the_models_of_a_key(site: Site) -> None:
    listed = site.caller.get("/models").json()
    assert listed["object"] == "list"
    assert [(entry["id"], entry["owned_by"]) for entry in listed["data"]] == [
        ("plain", "workload"),
        ("one", "capability"),
    ]
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    assert [entry["id"] for entry in theirs.get("/models").json()["data"]] == ["theirs", "two"]


def test_models_are_read_by_either_vendors_client(site: Site) -> None:
    base, key = site.plane.base_url, site.caller.api_key
    with (
        openai.OpenAI(base_url=base, api_key=key) as first,
        anthropic.Anthropic(base_url=base[:-3], api_key=key) as other,
    ):
        assert [model.id for model in first.models.list()] == ["plain", "one"]
        listed = other.models.list(limit=1)
        assert [(model.id, model.type, model.display_name) for model in listed] == [
            ("plain", "model", "plain"),
            ("one", "model", "one"),
        ]
        assert (listed.has_more, listed.first_id, listed.last_id) == (False, "plain", "one")
        assert first.models.retrieve("one").created == int(other.models.retrieve("one").created_at.timestamp())


@pytest.mark.parametrize("named", ["two", "nothing", CANARY])
def test_a_model_of_nobodys(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.get(f"/models/{named}"), ModelApi.NOT_FOUND)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/one", "/v1/reviews/rev_0", "/v1/nothing"])
def test_head_is_get_without_a_body(path: str, site: Site) -> None:
    key = {"Authorization": f"Bearer {site.caller.api_key}"}
    place = urlsplit(site.plane.base_url).netloc
    got, heads = [], []
    for method, found in (("GET", got), ("HEAD", heads), ("HEAD", heads)):
        connection = http.client.HTTPConnection(place, timeout=10)
        connection.request(method, path, headers=key)
        response = connection.getresponse()
        body = response.read()
        found.append((response.status, response.headers["content-length"], response.headers["content-type"]))
        assert len(body) == (int(response.headers["content-length"]) if method == "GET" else 0)
        connection.close()
    assert heads == got * 2


@pytest.mark.parametrize("named", ["rev_" + "0" * 32, CANARY, "*"])
def test_nothing_is_held_for_review_yet(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.get(f"/reviews/{named}"), ModelApi.REVIEW_NOT_FOUND)


def test_evidence_is_read_by_its_application_alone(site: Site, checks: Checks) -> None:
    response = site.caller.ask()
    request_id = response.headers["x-terraflow-request-id"]
    found = site.caller.evidence(request_id)
    assert found["tenant"] == "acme"
    assert found["decision"]["application"] == "web"
    for other in (site.folder.issue_key("umbra"), site.folder.issue_key("acme", "another")):
        refused = site.caller_with(other).get(f"/evidence/{request_id}")
        checks.ungoverned(refused, ModelApi.EVIDENCE_NOT_FOUND)


def test_evidence_has_its_inclusion_proof_once_a_checkpoint_covers_it(site: Site) -> None:
    request_id = site.caller.ask().headers["x-terraflow-request-id"]
    records: list[Any] = []
    while not records or any(part["inclusion_proof"] is None for part in records):
        records = site.caller.evidence(request_id)["records"]
    assert [part["inclusion_proof"].splitlines()[0] for part in records] == ["c2sp.org/tlog-proof@v1"] * 2


@pytest.mark.parametrize("named", ["req_" + "0" * 32, CANARY, "req_0"])
def test_evidence_of_nothing(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.get(f"/evidence/{named}"), ModelApi.EVIDENCE_NOT_FOUND)


def test_health_and_readiness_ask_for_no_key(site: Site) -> None:
    for path in ("/healthz", "/readyz"):
        reply = raw_request(site.plane, request_bytes([], b"", path, method="GET"))
        assert reply is not None and reply.status == 200
