"""What an item of a batch can end with because of what happened after its batch was accepted: a newer bundle, a store
that failed once the model was asked, a plane that was killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from terraflow.core.reasons import Governed, ModelApi, reason
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import answer_key, ended, line, made, results
from tests.harness.bundle import Json, purpose, remote
from tests.harness.caller import body_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import MESSAGES, MOUTHS, Mouth
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held
from tests.providers.vendor import Vendor

ON_NIGHT = headers_of("night")
SCHEMA: Json = {"type": "json_schema", "json_schema": {"name": "sum", "schema": {"type": "object"}}}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def vendor(upstreams: Upstreams, gate: Gate) -> Vendor:
    return upstreams.open(held(gate, answer('{"sum": 5}')))


@pytest.fixture
def site(launch: Launch, tmp_path: Path, vendor: Vendor) -> Site:
    """A plane with a P3 workload, one item of which runs at a time."""
    document = bundle.document(purpose("night", remote("engine", vendor.port), priority=3))
    return launch(document, answer_key_file=answer_key(tmp_path / "key"), batch_running_max=1, faults=True)


def _line(mouth: Mouth, name: str) -> Json:
    body = mouth.asks(body_of(response_format=SCHEMA))
    return line(name, url=f"/v1{mouth.path}") | {"body": body}


def _ended(site: Site, batch: Json) -> dict[str, Json]:
    return {name: found["response"] for name, found in results(site.caller, ended(site.caller, batch)).items()}


def _changed(site: Site, gate: Gate, vendor: Vendor, batch: Json, document: Json) -> dict[str, Json]:
    """How the items end when a newer bundle comes while the first of them runs."""
    until(lambda: vendor.requests)
    site.folder.activate(document)
    site.plane.wait_for("bundle 2 is in force")
    gate.open()
    return _ended(site, batch)


def test_a_workload_that_is_gone_by_then(site: Site, gate: Gate, vendor: Vendor, checks: Checks) -> None:
    batch = made(site.caller, _line(MESSAGES, "first"), _line(MESSAGES, "second"), headers=ON_NIGHT)
    without = bundle.document(purpose("other", remote("engine", vendor.port), priority=3))
    found = _changed(site, gate, vendor, batch, without)
    checks.item(site.caller, MESSAGES, found["first"], Governed.PERMITTED)
    checks.item(site.caller, MESSAGES, found["second"], Governed.UNKNOWN_WORKLOAD)
    assert len(vendor.requests) == 1


def test_a_workload_that_is_above_p3_by_then(site: Site, gate: Gate, vendor: Vendor, checks: Checks) -> None:
    batch = made(site.caller, _line(MESSAGES, "first"), _line(MESSAGES, "second"), headers=ON_NIGHT)
    raised = bundle.document(purpose("night", remote("engine", vendor.port), priority=1))
    found = _changed(site, gate, vendor, batch, raised)
    checks.item(site.caller, MESSAGES, found["first"], Governed.PERMITTED)
    checks.ungoverned_item(MESSAGES, found["second"], ModelApi.BATCH_REQUIRES_P3)
    assert len(vendor.requests) == 1


def test_an_answer_that_could_not_be_recorded(site: Site, gate: Gate, vendor: Vendor, checks: Checks) -> None:
    batch = made(site.caller, _line(MESSAGES, "one"), headers=ON_NIGHT)
    until(lambda: vendor.requests)
    with site.plane.fault("finish"):
        gate.open()
        response = _ended(site, batch)["one"]
    facts = checks.item(site.caller, MESSAGES, response, Governed.EVIDENCE_UNAVAILABLE)
    assert facts["capability"] == "engine"
    assert len(vendor.requests) == 1
    assert site.folder.money() == (0, COST)


def _left_without_its_line(site: Site, gate: Gate) -> str:
    """Let the item's request end while no result can be kept, as when the plane is killed between the two; gives the
    request's id."""
    gate.open()
    until(lambda: site.folder.rows("SELECT 1 FROM leaf WHERE kind = 'outcome'"))
    time.sleep(0.3)  # The line follows its outcome within a millisecond or two, and nothing tells that it could not.
    [(request_id,)] = site.folder.rows("SELECT request_id FROM batch_item WHERE state = 'running'")
    return str(request_id)


@pytest.mark.parametrize("mouth", MOUTHS, ids=lambda mouth: mouth.name)
def test_a_line_that_could_not_be_kept_is_made_of_the_record(
    mouth: Mouth, site: Site, gate: Gate, vendor: Vendor, checks: Checks
) -> None:
    batch = made(site.caller, _line(mouth, "one"), headers=ON_NIGHT)
    with site.plane.fault("end_item"):
        request_id = _left_without_its_line(site, gate)
    response = _ended(site, batch)["one"]
    assert response["request_id"] == request_id
    checks.item(site.caller, mouth, response, Governed.PERMITTED)
    again = _ended(site, made(site.caller, _line(mouth, "one"), headers=ON_NIGHT))["one"]
    assert _without_ids(response["body"]) == _without_ids(again["body"])
    assert len(vendor.requests) == 2


def _without_ids(body: Json) -> Json:
    facts = {key: value for key, value in body["terraflow"].items() if key != "request_id"}
    return {key: value for key, value in body.items() if key not in ("id", "created")} | {"terraflow": facts}


def test_an_answer_that_was_erased_before_its_line_was_kept(
    site: Site, gate: Gate, vendor: Vendor, checks: Checks
) -> None:
    batch = made(site.caller, _line(MESSAGES, "one"), headers=ON_NIGHT)
    with site.plane.fault("end_item"):
        request_id = _left_without_its_line(site, gate)
        assert site.folder.erase(request_id) == 1
    response, code = _ended(site, batch)["one"], Governed.IDEMPOTENCY_REPLAY_NO_CONTENT
    assert checks.raised.item(response) is code
    body = response["body"]
    MESSAGES.error(body, 409, reason(code).meaning, None)
    assert (response["status_code"], body["error"]["code"], body["terraflow"]["reasons"]) == (409, code, [code])
    original = {"original_request_id": request_id, "original_reason_code": Governed.PERMITTED}
    assert (response["request_id"], body["terraflow"]["details"]) == (request_id, original)
    checks.outcome(site.caller, request_id, Governed.PERMITTED, cost=COST)
    assert len(vendor.requests) == 1
