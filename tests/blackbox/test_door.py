"""Steps 4 to 10: the bundle, the workload, the rate, the door, tools and the class of what a request holds."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, moment, purpose, remote, sim
from tests.harness.caller import CANARY, body_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import MOUTHS, Mouth
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held
from tests.providers.vendor import says

SCAN_BYTES_MAX = 20_000
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CARD = "4111 1111 1111 1111"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

STATES: dict[str, Json] = {
    "draft": {"state": "draft", "approver": None},
    "submitted": {"state": "submitted"},
    "superseded": {"state": "superseded"},
    "expired": {"state": "expired"},
    "not_effective": {"effective_from": moment(3_600)},
    "past_expiry": {"expires_at": moment(-3_600)},
}


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    mismatched = purpose("mismatched", sim("one"))
    mismatched.contract["tenant"] = "umbra"
    return launch_shared(
        bundle.document(
            purpose("plain", sim("one")),
            mismatched,
            purpose("withheld", sim("one")),
            *(purpose(state, sim("one"), **changes) for state, changes in STATES.items()),
            *(purpose(f"once-{mouth.name}", sim("one"), requests_per_minute=1) for mouth in MOUTHS),
            purpose("tools", sim("one"), tools=["look_up"]),
            purpose("declared", sim("one"), require_class=True),
            purpose("internal", sim("one"), data_classes=["internal"]),
            purpose("no-cards", sim("one"), sensitive_types=["pii"]),
            purpose("theirs", sim("one"), tenant="umbra"),
            withheld=("withheld",),
        ),
        scan_bytes_max=SCAN_BYTES_MAX,
    )


# Step 4: the bundle.


@every_mouth
def test_no_bundle_was_ever_activated(launch: Launch, checks: Checks) -> None:
    site = launch(None)
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_INVALID)
    models = site.caller.get("/models")
    checks.ungoverned(models, Governed.BUNDLE_INVALID)
    assert site.caller.get("/readyz", root=True).status_code == 503


@every_mouth
@pytest.mark.parametrize("change", ["signature", "payload", "other key", "no envelope"])
def test_a_bundle_that_was_changed_in_the_database(change: str, launch: Launch, checks: Checks) -> None:
    document = bundle.document(purpose("plain", sim("one")))
    site = launch(document, prepare=lambda folder: folder.tamper_with_bundle(change))
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_INVALID)


def test_a_bad_bundle_leaves_the_one_before_in_force(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    site.folder.tamper_with_bundle("other key", sequence=2)
    site.plane.wait_for("refused")
    checks.answered(site.caller, site.caller.ask(), capability="one")


def test_a_new_bundle_comes_into_force_while_the_plane_runs(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    site.folder.activate(bundle.document(purpose("plain", sim("two"))))
    until(lambda: site.caller.ask().headers["x-terraflow-capability"] == "two")
    decision = site.caller.evidence(site.caller.ask().headers["x-terraflow-request-id"])["decision"]
    assert decision["bundle"]["sequence"] == 2


@every_mouth
def test_a_bundle_that_expires_while_it_is_in_force(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    checks.answered(site.caller, site.caller.ask(), capability="one")
    site.folder.activate(bundle.document(purpose("plain", sim("one")), expires=moment(1)))
    until(lambda: site.caller.ask().status_code == 503)
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_EXPIRED)
    site.plane.restart()
    checks.refused(site.caller, site.caller.ask(), Governed.BUNDLE_EXPIRED)
    site.folder.activate(bundle.document(purpose("plain", sim("one"))))
    until(lambda: site.caller.ask().status_code == 200)


def test_a_request_keeps_the_bundle_that_it_began_under(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, says(500, {})))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port), sim("spare"))))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(site.caller.ask)
        until(lambda: vendor.requests)
        site.folder.activate(bundle.document(purpose("other", sim("two"))))
        site.plane.wait_for("bundle 2 is in force")
        gate.open()
        response = running.result()
    checks.answered(site.caller, response, Governed.PROVIDER_ERROR_RECOVERED, capability="spare")
    decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    assert decision["bundle"]["sequence"] == 1


def test_a_request_that_waits_keeps_its_bundle_too(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    document = bundle.document(purpose("plain", remote("engine", vendor.port)))
    site = launch(document, running_max=1)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(site.caller.ask)
        until(lambda: vendor.requests)
        waiting = threads.submit(site.caller.ask)
        time.sleep(0.2)
        site.folder.activate(bundle.document(purpose("other", sim("two"))))
        site.plane.wait_for("bundle 2 is in force")
        gate.open()
        checks.answered(site.caller, first.result(), capability="engine", cost=COST)
        response = waiting.result()
    checks.answered(site.caller, response, capability="engine", cost=COST)


# Step 5: the workload.


@every_mouth
@pytest.mark.parametrize("named", ["nothing-of-that-name", "theirs"])
def test_a_workload_that_this_tenant_does_not_have(named: str, site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask(named), Governed.UNKNOWN_WORKLOAD)


@every_mouth
def test_a_workload_whose_contract_is_another_tenants(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("mismatched"), Governed.TENANT_MISMATCH)


@every_vendor_mouth
def test_a_workload_that_the_application_may_not_call(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("withheld"), Governed.APP_NOT_ENTITLED_TO_WORKLOAD)
    checks.refused(site.caller, site.caller.ask(model="withheld"), Governed.APP_NOT_ENTITLED_TO_WORKLOAD)


@every_mouth
def test_an_application_that_the_bundle_does_not_know(site: Site, checks: Checks) -> None:
    stranger = site.caller_with(site.folder.issue_key(application="stranger"))
    response = stranger.ask()
    checks.refused(stranger, response, Governed.APP_NOT_ENTITLED_TO_WORKLOAD, detail="application_unknown")


@every_mouth
@pytest.mark.parametrize("state", STATES)
def test_a_contract_that_is_not_in_force(state: str, site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask(state), Governed.CONTRACT_NOT_EXECUTABLE, detail=state)


@every_vendor_mouth
def test_how_a_workload_is_chosen(site: Site, checks: Checks) -> None:
    for response, workload in (
        (site.caller.ask(), "plain"),
        (site.caller.ask("tools", model="internal"), "tools"),
        (site.caller.ask(model="internal"), "internal"),
        (site.caller.ask(model="theirs"), "plain"),
    ):
        checks.answered(site.caller, response, capability="one")
        decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
        assert decision["workload"] == workload


# Step 7: the rate.


def test_the_second_request_of_a_minute(mouth: Mouth, site: Site, checks: Checks) -> None:
    checks.answered(site.caller, site.caller.ask(f"once-{mouth.name}"), capability="one")
    response = site.caller.ask(f"once-{mouth.name}")
    checks.refused(site.caller, response, Governed.RATE_LIMITED, detail="workload", retry_after=True)
    assert 1 <= int(response.headers["retry-after"]) <= 60


# Step 8: the door.


class Door:
    """A plane in which one request runs, held by its model until the gate opens."""

    def __init__(self, launch: Launch, upstreams: Upstreams, **settings: int) -> None:
        self.gate = Gate()
        self.vendor = upstreams.open(held(self.gate, answer()))
        engine = remote("engine", self.vendor.port)
        theirs = purpose("theirs", engine, tenant="umbra")
        self.site = launch(bundle.document(purpose("plain", engine), theirs), **settings)
        self.others = self.site.caller_with(self.site.folder.issue_key("umbra"))
        self.threads = ThreadPoolExecutor(8)
        self.running = self.threads.submit(self.site.caller.ask)
        until(lambda: self.vendor.requests)

    def end(self, checks: Checks, *more: Any) -> None:
        self.gate.open()
        for waiting in (self.running, *more):
            checks.answered(self.site.caller, waiting.result(), capability="engine", cost=COST)
        self.threads.shutdown()


@every_mouth
def test_a_tenant_that_fills_its_share(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    door = Door(launch, upstreams, tenant_max=1)
    response = door.site.caller.ask()
    checks.refused(door.site.caller, response, Governed.TENANT_QUEUE_LIMIT, retry_after=True)
    other = door.threads.submit(door.others.ask)
    until(lambda: len(door.vendor.requests) == 2)
    door.end(checks)
    checks.answered(door.others, other.result(), capability="engine", cost=COST)


@every_mouth
def test_a_full_queue(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    door = Door(launch, upstreams, running_max=1, waiting_max=1)
    waiting = [door.threads.submit(door.site.caller.ask) for _ in range(2)]
    until(lambda: any(one.done() for one in waiting))
    shed = next(one for one in waiting if one.done())
    checks.refused(door.site.caller, shed.result(), Governed.QUEUE_SHED, retry_after=True)
    waiting.remove(shed)
    assert len(door.vendor.requests) == 1
    door.end(checks, *waiting)


@every_mouth
def test_a_deadline_that_passes_in_the_queue(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    door = Door(launch, upstreams, running_max=1)
    response = door.site.caller.ask(headers=headers_of(deadline_ms=50))
    checks.refused(door.site.caller, response, Governed.DEADLINE_EXPIRED, detail="waiting_for_admission")
    assert len(door.vendor.requests) == 1
    door.end(checks)


@every_mouth
def test_a_caller_that_leaves_the_queue(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    door = Door(launch, upstreams, running_max=1)
    request_id = door.site.caller.leave_queue()
    checks.outcome(door.site.caller, request_id, Governed.CANCELLED, cost=0, detail="caller_left")
    assert len(door.vendor.requests) == 1
    door.end(checks)


# Step 9: tools.


@pytest.mark.parametrize(
    "offered",
    [
        {"tools": [TOOL]},
        {"tools": [TOOL, {"type": "function", "function": {"name": CANARY}}]},
        {"tools": [{"type": "custom", "custom": {"name": "shell"}}]},
        {"functions": [{"name": "look_up"}]},
        {"web_search_options": {}},
        {"tool_choice": {"type": "function", "function": {"name": "look_up"}}},
    ],
    ids=["one", "two", "custom", "functions", "web-search", "chosen"],
)
def test_a_tool_that_the_contract_does_not_list(offered: Json, site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("plain", **offered), Governed.TOOL_NOT_PERMITTED)
    two = [TOOL, {"type": "function", "function": {"name": CANARY}}]
    checks.refused(site.caller, site.caller.ask("tools", tools=two), Governed.TOOL_NOT_PERMITTED)


@every_mouth
def test_a_tool_that_the_contract_lists(site: Site, checks: Checks) -> None:
    checks.answered(site.caller, site.caller.ask("tools", tools=[TOOL]), capability="one")


# Step 10: the class.


@every_mouth
def test_text_above_the_scan_bound(site: Site, checks: Checks) -> None:
    response = site.caller.ask(text="x" * SCAN_BYTES_MAX)
    facts = checks.refused(site.caller, response, Governed.INPUT_TOO_LARGE)
    assert facts["details"] == {"scan_bytes_max": SCAN_BYTES_MAX}


@every_mouth
def test_a_class_that_must_be_declared(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("declared"), Governed.DATA_CLASS_UNDECLARED)
    declared = site.caller.ask("declared", headers=headers_of(data_class="public"))
    checks.answered(site.caller, declared, capability="one")


@every_mouth
@pytest.mark.parametrize(
    ("workload", "text", "headers", "detail"),
    [
        ("internal", "Hello", headers_of(data_class="confidential"), "class"),
        ("internal", "Hello", headers_of(types="pii"), "class"),
        ("internal", f"The card {CARD} was charged", {}, "class"),
        ("internal", f"The card {CARD} was charged", headers_of(data_class="public"), "class"),
        ("internal", "Write to jane.roe@example.org", {}, "class"),
        ("no-cards", f"The card {CARD} was charged", {}, "pci"),
        ("no-cards", "Hello", headers_of(types="pii, phi"), "phi"),
    ],
)
def test_a_class_or_a_type_that_the_contract_does_not_accept(
    workload: str, text: str, headers: dict[str, str], detail: str, site: Site, checks: Checks
) -> None:
    response = site.caller.ask(workload, text, headers=headers)
    checks.refused(site.caller, response, Governed.DATA_CLASS_NOT_PERMITTED, detail=detail)
    assert CARD.encode() not in response.content


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        {"messages": [{"role": "user", "content": "Hello", "name": f"card {CARD}"}]},
        {"messages": [{"role": "system", "content": CARD}, {"role": "user", "content": "Hello"}]},
        {"messages": [{"role": "user", "content": CARD[:9]}, {"role": "user", "content": CARD[9:]}]},
        body_of(user=f"card {CARD}"),
        body_of(metadata={"card": CARD}),
        body_of(stop=[CARD]),
        body_of(prompt_cache_key=f"card {CARD}"),
        body_of(response_format={"type": "json_schema", "json_schema": {"name": "a", "description": CARD}}),
    ],
    ids=["image", "name", "system", "split", "user", "metadata", "stop", "cache-key", "schema"],
)
def test_every_string_that_would_reach_a_model_is_scanned(body: Json, site: Site, checks: Checks) -> None:
    response = site.caller.post(body, headers_of("internal"))
    checks.refused(site.caller, response, Governed.DATA_CLASS_NOT_PERMITTED, detail="class")
    assert CARD not in json.dumps(site.caller.evidence(response.headers["x-terraflow-request-id"]))
