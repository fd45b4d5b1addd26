"""One part of the plane fails: nothing that should not run runs, nothing is released that is not recorded, the failure
is said by its code, and what it quoted is nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from terraflow.core.reasons import Governed, ModelApi, reason
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.faults.plane import CLOCK_JUMPED, STREAM_CLINGS, STREAM_STOPS
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote, sim
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import mouth_of
from tests.harness.upstreams import COST, DONE, END, USED, Upstreams, answer, flow, text
from tests.providers.vendor import Vendor, says


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("plain", engine),
            purpose("cached", engine, response_cache={"ttl_s": 600}),
            purpose("falls-back", engine, sim("spare", tier="premium")),
            purpose("once", engine, requests_per_minute=1),
        ),
        faults=True,
        health_faults_max=10_000,
    )


@pytest.fixture(autouse=True)
def answering(vendor: Vendor) -> None:
    """The vendor answers, unless a test says otherwise."""
    vendor.replies[:] = [answer("The secret of the answer.")]


# Before the call: no call.


def _ask(site: Site, how: str) -> Any:
    if how == "keyed":
        return site.caller.ask(headers=headers_of(key="a key"))
    if how == "streamed":
        return site.caller.ask(stream=True)
    return site.caller.ask("cached" if how == "cached" else "plain")


_EVIDENCE = Governed.EVIDENCE_UNAVAILABLE
_POLICY = Governed.POLICY_EVALUATION_ERROR
_FAULT = Governed.INTERNAL_ERROR


@every_mouth
@pytest.mark.parametrize(
    ("fault", "how", "code"),
    [
        ("claim", "keyed", _EVIDENCE),
        ("find_answer", "cached", _EVIDENCE),
        ("begin", "plain", _EVIDENCE),
        ("begin", "streamed", _EVIDENCE),
        ("begin broken", "plain", _EVIDENCE),
        ("begin nothing", "plain", _EVIDENCE),
        ("scan nothing", "plain", _FAULT),
        ("scan odd", "plain", _FAULT),
        ("scan broken", "streamed", _FAULT),
        ("boundary nothing", "plain", _POLICY),
        ("boundary odd", "plain", _POLICY),
        ("boundary broken", "streamed", _POLICY),
        ("secret nothing", "plain", _POLICY),
        ("secret broken", "plain", _POLICY),
        ("provider missing", "plain", _FAULT),
    ],
)
def test_a_fault_before_the_call(
    fault: str, how: str, code: Governed, site: Site, vendor: Vendor, checks: Checks
) -> None:
    calls = len(vendor.requests)
    with site.plane.fault(fault):
        response = _ask(site, how)
    checks.refused(site.caller, response, code)
    assert len(vendor.requests) == calls
    checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)


@every_vendor_mouth
def test_the_store_is_gone(site: Site, vendor: Vendor, checks: Checks) -> None:
    calls = len(vendor.requests)
    with site.plane.fault("store gone"):
        responses = [site.caller.ask(), site.caller.ask(stream=True), site.caller.get("/models")]
        assert site.caller.get("/healthz", root=True).status_code == 200
    for response in responses:
        assert response.status_code == 503
        body, code = response.json(), Governed.EVIDENCE_UNAVAILABLE
        assert body["error"]["code"] == code
        mouth_of(response.url.path).error(body, 503, reason(code).meaning, None)
        assert "x-terraflow-reason" not in response.headers
    assert len(vendor.requests) == calls
    checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)


def test_a_shed_that_cannot_be_noted(site: Site, checks: Checks) -> None:
    assert site.caller.ask("once").status_code == 200
    with site.plane.fault("note"):
        response = site.caller.ask("once")
    checks.refused(site.caller, response, Governed.EVIDENCE_UNAVAILABLE, recorded=False)


@pytest.mark.parametrize(("fault", "status"), [("find_entries", 503), ("find_entries broken", 500)])
def test_a_read_that_fails(fault: str, status: int, site: Site, checks: Checks) -> None:
    path = "/evidence/req_" + "0" * 32
    with site.plane.fault(fault):
        response = site.caller.get(path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == (_EVIDENCE if status == 503 else _FAULT)
    assert "x-terraflow-reason" not in response.headers
    checks.ungoverned(site.caller.get(path), ModelApi.EVIDENCE_NOT_FOUND)


# During the call.


@every_mouth
@pytest.mark.parametrize("fault", ["provider broken", "provider nothing", "provider odd"])
def test_a_fault_in_the_call(fault: str, site: Site, checks: Checks) -> None:
    with site.plane.fault(fault):
        response = site.caller.ask()
    checks.refused(site.caller, response, _FAULT)
    checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)


@every_vendor_mouth
def test_a_fault_in_a_stream_that_flows(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Cert"), 60.0)]
    left = len(vendor.closed_at)
    with site.plane.fault(STREAM_STOPS), site.caller.stream("plain") as streamed:
        events = streamed.rest()
    outcome = checks.broken(site.caller, streamed, events, _FAULT, "")
    assert outcome["attempts"][0]["usage"]["output"] == 1
    assert outcome["cost_micro_usd"] > 0, "what was seen of the answer was used"
    until(lambda: len(vendor.closed_at) > left)


@every_vendor_mouth
def test_a_stream_that_cannot_be_left_is_closed_all_the_same(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certainly."), END, USED, DONE)]
    with site.plane.fault(STREAM_CLINGS), site.caller.stream("plain") as streamed:
        events = streamed.rest()
    outcome = checks.broken(site.caller, streamed, events, _FAULT, "")
    assert outcome["cost_micro_usd"] > 0, "it was used"


@every_mouth
@pytest.mark.parametrize("fault", ["reserve", "settle"])
def test_a_fallback_that_cannot_be_reserved(fault: str, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [says(401, {})]
    with site.plane.fault(fault):
        response = site.caller.ask("falls-back")
    checks.refused(site.caller, response, _EVIDENCE)


# After the call: the answer is withheld, and the money is not lost.


def _recorded_late(site: Site, checks: Checks, request_id: str, code: Governed) -> None:
    """Once the store is there again the request is recorded as it was, with the money that it is known to have used."""
    outcome = checks.outcome(site.caller, request_id, code, cost=COST, detail="recorded_late")
    assert [attempt["capability"] for attempt in outcome["attempts"]] == ["engine"]


@every_mouth
@pytest.mark.parametrize(("fault", "code"), [("finish", _EVIDENCE), ("finish broken", _FAULT)])
def test_an_answer_that_cannot_be_recorded_is_withheld(fault: str, code: Governed, site: Site, checks: Checks) -> None:
    with site.plane.fault(fault):
        response = site.caller.ask()
        checks.refused(site.caller, response, code, cost=COST, capability="engine", recorded=False)
        request_id = response.headers["x-terraflow-request-id"]
        assert site.caller.get(f"/evidence/{request_id}").json()["outcome"] is None
    assert "secret" not in response.text
    _recorded_late(site, checks, request_id, code)


@every_vendor_mouth
def test_a_stream_that_cannot_be_recorded_ends_in_an_error(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certainly."), END, USED, DONE)]
    with site.plane.fault("finish"), site.caller.stream("plain") as streamed:
        events = streamed.rest()
    assert "Certainly." in "".join(events)
    assert "[DONE]" not in events
    assert not any('"message_stop"' in event for event in events)
    last: Json = json.loads(events[-1])
    assert last["error"]["code"] == last["terraflow"]["reason_code"] == _EVIDENCE
    _recorded_late(site, checks, streamed.request_id, _EVIDENCE)


@every_mouth
def test_a_withheld_answer_is_not_called_for_again_under_its_key(site: Site, vendor: Vendor, checks: Checks) -> None:
    headers = headers_of(key="withheld")
    with site.plane.fault("finish"):
        first = site.caller.ask(headers=headers)
    checks.refused(site.caller, first, _EVIDENCE, cost=COST, capability="engine", recorded=False)
    _recorded_late(site, checks, first.headers["x-terraflow-request-id"], _EVIDENCE)
    calls = len(vendor.requests)
    checks.refused(site.caller, site.caller.ask(headers=headers), Governed.IDEMPOTENCY_REPLAY_NO_CONTENT)
    assert len(vendor.requests) == calls


def test_a_refusal_that_cannot_be_recorded_gives_its_key_back(site: Site, vendor: Vendor, checks: Checks) -> None:
    headers = headers_of(key="refused while the store was gone")
    tools = [{"type": "function", "function": {"name": "unlisted"}}]
    with site.plane.fault("finish"):
        first = site.caller.ask(headers=headers, tools=tools)
    checks.refused(site.caller, first, _EVIDENCE, recorded=False)
    checks.outcome(site.caller, first.headers["x-terraflow-request-id"], _EVIDENCE, cost=0, detail="recorded_late")
    again = site.caller.ask(headers=headers | headers_of(deadline_ms=5_000), tools=tools)
    checks.refused(site.caller, again, Governed.TOOL_NOT_PERMITTED)


# The clock.


@every_mouth
def test_a_wall_clock_that_jumps(site: Site, checks: Checks) -> None:
    with site.plane.fault(CLOCK_JUMPED):
        response = site.caller.ask()
    checks.refused(site.caller, response, Governed.BUNDLE_EXPIRED)
    checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)
