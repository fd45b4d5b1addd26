"""Step 15: what follows when a model fails: retries, fallbacks, the safe path, and how a request ends without them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote, sim
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import MOUTHS, Mouth
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held
from tests.providers.vendor import says

RETRIED = ("connect", "cut_off", "rate_limited", "overloaded", "server_error")
MOVED_ON = ("timeout", "authentication", "model_not_found", "malformed", "mismatch", "unsupported_field")
NAMES = [mouth.name for mouth in MOUTHS]
"""Each mouth has its own models where a test wears them out."""

PAID_FOR = frozenset(("timeout", "cut_off", "malformed"))
"""Failures in which the model may have worked without saying what it used: the worst case is posted."""


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    alone = [purpose(f"alone-{how}", sim(f"a-{how}", {"fail": how})) for how in (*RETRIED, *MOVED_ON)]
    with_spare = [
        purpose(f"spare-{how}", sim(f"b-{how}", {"fail": how}), sim(f"c-{how}")) for how in (*RETRIED, *MOVED_ON)
    ]
    again = [purpose(f"again-{how}", sim(f"d-{how}", {"fail": how}, {})) for how in RETRIED]
    down: Json = {"fail": "authentication"}
    return launch_shared(
        bundle.document(
            *alone,
            *with_spare,
            *again,
            purpose("filtered", sim("filters", {"fail": "content_filtered"}), sim("unused")),
            purpose("rejected", sim("rejects", {"fail": "rejected_content"}), sim("unused-too")),
            purpose("field", sim("lacks", {"fail": "unsupported_field", "fail_fields": ["logprobs"]})),
            *(purpose(f"safe-{name}", sim(f"down-{name}", down), sim("kept"), safe_path="kept") for name in NAMES),
            purpose("safe-only", sim("out", enabled=False), sim("kept"), safe_path="kept"),
            purpose(
                "graph",
                *(sim(name, down) for name in ("start", "left", "right")),
                sim("end"),
                sim("never"),
                fallback={"start": ["left", "right"], "left": ["start"], "right": ["left", "end"], "end": ["start"]},
            ),
            purpose("circle", sim("x", down), sim("y", down), fallback={"x": ["y"], "y": ["x"]}),
            *(purpose(f"pinned-{name}", sim(f"p-{name}", down), sim("q")) for name in NAMES),
            purpose("slow", sim("stalls", {"latency_ms": 600_000})),
            purpose("waits", sim("asks-for-time", {"fail": "rate_limited", "retry_after_s": 3600}), sim("spare")),
            purpose("bad-requests", sim("strict", {"fail": "rejected_content"})),
            purpose("rests", sim("tired", *[{"fail": "authentication"}] * 3, {})),
        ),
        health_faults_max=3,
        health_rest_s=1,
    )


@pytest.mark.parametrize("how", [*RETRIED, *MOVED_ON])
def test_a_failure_without_another_route(how: str, site: Site, checks: Checks) -> None:
    response = site.caller.ask(f"alone-{how}")
    request_id = response.headers["x-terraflow-request-id"]
    decision, outcome = (site.caller.evidence(request_id)[part] for part in ("decision", "outcome"))
    attempts = outcome["attempts"]
    tries = 3 if how in RETRIED else 1
    worst_case = tries * decision["reserved_micro_usd"] if how in PAID_FOR else 0
    code = Governed.PROVIDER_REJECTED_REQUEST if how == "unsupported_field" else Governed.PROVIDER_ERROR_UNRECOVERED
    detail = "FIELD_NOT_SUPPORTED" if how == "unsupported_field" else how
    checks.refused(site.caller, response, code, detail=detail, cost=worst_case)
    assert [attempt["failure"] for attempt in attempts] == [how] * tries
    assert [attempt.get("kind", "first") for attempt in attempts] == ["first", "retry", "retry"][:tries]
    assert all(attempt.get("estimated", False) is (how in PAID_FOR) for attempt in attempts)


@pytest.mark.parametrize("how", [*RETRIED, *MOVED_ON])
def test_a_failure_with_another_route(how: str, site: Site, checks: Checks) -> None:
    response = site.caller.ask(f"spare-{how}")
    assert checks.raised(response) is Governed.PROVIDER_ERROR_RECOVERED
    assert response.headers["x-terraflow-capability"] == f"c-{how}"
    outcome = checks.outcome(site.caller, response.headers["x-terraflow-request-id"], Governed.PROVIDER_ERROR_RECOVERED)
    assert [attempt["capability"] for attempt in outcome["attempts"]][-1] == f"c-{how}"
    assert outcome["attempts"][-1]["kind"] == "fallback"


@pytest.mark.parametrize("how", RETRIED)
def test_a_failure_that_a_retry_mends(how: str, site: Site, checks: Checks) -> None:
    response = site.caller.ask(f"again-{how}")
    assert checks.raised(response) is Governed.PROVIDER_ERROR_RECOVERED
    assert response.headers["x-terraflow-capability"] == f"d-{how}"
    assert set(response.json()["terraflow"]["reasons"]) == {
        Governed.PROVIDER_ERROR_RECOVERED,
        Governed.PERMITTED,
    }


@every_mouth
@pytest.mark.parametrize(
    ("workload", "code", "detail", "read"),
    [
        ("filtered", Governed.CONTENT_FILTERED, "content_filtered", True),
        ("rejected", Governed.PROVIDER_REJECTED_REQUEST, "rejected_content", False),
    ],
)
def test_a_failure_that_no_other_route_would_mend(
    workload: str, code: Governed, detail: str, read: bool, site: Site, checks: Checks
) -> None:
    response = site.caller.ask(workload)
    found = site.caller.evidence(response.headers["x-terraflow-request-id"])
    cost = -(-found["decision"]["request"]["bytes"] // 4) if read else 0
    checks.refused(site.caller, response, code, detail=detail, cost=cost)
    assert len(found["outcome"]["attempts"]) == 1


def test_a_field_that_no_route_takes_is_named(site: Site, checks: Checks) -> None:
    response = site.caller.ask("field", logprobs=True)
    facts = checks.refused(site.caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="FIELD_NOT_SUPPORTED")
    assert facts["details"] == {"fields": ["logprobs"]}


def test_requests_that_a_model_refuses_never_make_it_unhealthy(site: Site, checks: Checks) -> None:
    for _ in range(6):
        response = site.caller.ask("bad-requests")
        checks.refused(site.caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="rejected_content")


@every_mouth
def test_the_safe_path_answers_when_nothing_else_could(mouth: Mouth, site: Site, checks: Checks) -> None:
    also = (Governed.PERMITTED, Governed.PROVIDER_ERROR_RECOVERED)
    checks.answered(
        site.caller, site.caller.ask(f"safe-{mouth.name}"), Governed.SAFE_PATH_USED, capability="kept", also=also
    )
    checks.answered(site.caller, site.caller.ask("safe-only"), Governed.SAFE_PATH_USED, capability="kept")


def test_the_fallback_graph_is_followed_breadth_first_and_ends(site: Site, checks: Checks) -> None:
    response = site.caller.ask("graph")
    checks.answered(site.caller, response, Governed.PROVIDER_ERROR_RECOVERED, capability="end")
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert [attempt["capability"] for attempt in outcome["attempts"]] == ["start", "left", "right", "end"]
    response = site.caller.ask("circle")
    checks.refused(site.caller, response, Governed.PROVIDER_ERROR_UNRECOVERED, detail="authentication")


@every_mouth
def test_a_pin_has_no_fallback_that_the_contract_does_not_name(mouth: Mouth, site: Site, checks: Checks) -> None:
    pin, code = f"p-{mouth.name}", Governed.PROVIDER_ERROR_UNRECOVERED
    response = site.caller.ask(f"pinned-{mouth.name}", model=pin)
    checks.refused(site.caller, response, code, detail="authentication", capability=pin)


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_the_deadline_comes_during_the_call(stream: bool, site: Site, checks: Checks) -> None:
    response = site.caller.ask("slow", headers=headers_of(deadline_ms=60), stream=stream)
    request_id = response.headers["x-terraflow-request-id"]
    reserved = site.caller.evidence(request_id)["decision"]["reserved_micro_usd"]
    checks.refused(site.caller, response, Governed.DEADLINE_EXPIRED, detail="timeout", cost=reserved)


def test_a_contract_cannot_ask_for_more_time_than_the_plane_gives(launch: Launch, checks: Checks) -> None:
    slow = purpose("plain", sim("stalls", {"latency_ms": 600_000}), deadline_ms=60_000)
    site = launch(bundle.document(slow), deadline_ms_max=300)
    response = site.caller.ask()
    reserved = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]["reserved_micro_usd"]
    checks.refused(site.caller, response, Governed.DEADLINE_EXPIRED, detail="timeout", cost=reserved)


def test_a_vendor_that_asks_for_more_time_than_there_is_is_left(site: Site, checks: Checks) -> None:
    response = site.caller.ask("waits", headers=headers_of(deadline_ms=20_000))
    checks.answered(site.caller, response, Governed.PROVIDER_ERROR_RECOVERED, capability="spare")


def test_after_its_rest_one_call_is_let_through_and_heals(site: Site, checks: Checks) -> None:
    for _ in range(3):
        response = site.caller.ask("rests")
        checks.refused(site.caller, response, Governed.PROVIDER_ERROR_UNRECOVERED, detail="authentication")
    refused = site.caller.ask("rests")
    checks.refused(site.caller, refused, Governed.TIER_NOT_AVAILABLE, retry_after=True)
    until(lambda: site.caller.ask("rests").status_code == 200)
    checks.answered(site.caller, site.caller.ask("rests"), capability="tired")


def test_a_slot_is_given_back_however_its_call_ends(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    vendor = upstreams.open(says(400, {"error": {"message": "no"}}), says(200, b"not json"), answer())
    site = launch(
        bundle.document(purpose("plain", remote("engine", vendor.port, in_flight_max=1))), health_faults_max=100
    )
    statuses = [site.caller.ask(headers=headers_of(deadline_ms=5_000)).status_code for _ in range(3)]
    assert statuses == [400, 503, 200]


@every_mouth
def test_a_deadline_that_passes_before_a_slot_is_free(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port, in_flight_max=1))))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(site.caller.ask)
        until(lambda: vendor.requests)
        late = site.caller.ask(headers=headers_of(deadline_ms=50))
        checks.refused(site.caller, late, Governed.DEADLINE_EXPIRED, detail="waiting_for_capacity")
        gate.open()
        checks.answered(site.caller, running.result(), capability="engine", cost=COST)
    assert len(vendor.requests) == 1
