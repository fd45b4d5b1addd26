"""Every code that a batch's item can end with, in the shape of each mouth that a batch can be for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.blackbox.test_policy import CASES as EXCLUSIONS
from tests.harness import bundle
from tests.harness.batches import answer_key, ended, made, results
from tests.harness.bundle import Json, Purpose, limit, moment, purpose, remote, sim
from tests.harness.caller import CANARY, body_of
from tests.harness.checks import Checks
from tests.harness.mouths import INVOCATIONS, MOUTHS, Mouth

SCAN_BYTES_MAX = 20_000
SCHEMA: Json = {"type": "object", "required": ["sum"]}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
DOWN: Json = {"fail": "authentication"}


class Case(NamedTuple):
    """A workload, and the code of an item that is for it."""

    code: Governed
    purpose: Purpose
    text: str = "Hello"
    body: dict[str, Any] = {}


def _case(name: str, code: Governed, *capabilities: Json, text: str = "Hello", body: Any = None, **terms: Any) -> Case:
    return Case(code, purpose(name, *capabilities, priority=3, **terms), text, body or {})


def _mismatched() -> Case:
    case = _case("mismatched", Governed.TENANT_MISMATCH, sim("m"))
    case.purpose.contract["tenant"] = "umbra"
    return case


# fmt: off
CASES = (
    _case("fine",       Governed.PERMITTED, sim("a")),
    _case("withheld",   Governed.APP_NOT_ENTITLED_TO_WORKLOAD, sim("a")),
    _case("poor",       Governed.BUDGET_EXHAUSTED, sim("a")),
    _case("filtered",   Governed.CONTENT_FILTERED, sim("filters", {"fail": "content_filtered"})),
    _case("late",       Governed.CONTRACT_NOT_EXECUTABLE, sim("a"), expires_at=moment(-60)),
    _case("internal",   Governed.DATA_CLASS_NOT_PERMITTED, sim("a"), text="Card 4111 1111 1111 1111",
          data_classes=["internal"]),
    _case("declared",   Governed.DATA_CLASS_UNDECLARED, sim("a"), require_class=True),
    _case("large",      Governed.INPUT_TOO_LARGE, sim("a"), text="x" * SCAN_BYTES_MAX),
    _case("closed",     Governed.NO_POLICY_PERMITTED_ROUTE, sim("off", enabled=False)),
    _case("dear",       Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT, sim("a"), request_limit_usd="0.0001"),
    _case("recovers",   Governed.PROVIDER_ERROR_RECOVERED, sim("falls", DOWN), sim("spare")),
    _case("down",       Governed.PROVIDER_ERROR_UNRECOVERED, sim("fails", DOWN)),
    _case("rejected",   Governed.PROVIDER_REJECTED_REQUEST, sim("rejects", {"fail": "rejected_content"})),
    _case("safe",       Governed.SAFE_PATH_USED, sim("off", enabled=False), sim("kept"), safe_path="kept"),
    _case("tools",      Governed.TOOL_NOT_PERMITTED, sim("a"), body={"tools": [TOOL]}),
    _case("blocked",    Governed.VALIDATION_BLOCKED, sim("stays-bad", {"text": CANARY}),
          output={"json_schema": SCHEMA}),
    _case("repaired",   Governed.VALIDATION_REPAIRED, sim("mends", {"text": CANARY}, {"text": '{"sum": 5}'}),
          output={"json_schema": SCHEMA}),
    _mismatched(),
)
# fmt: on
CACHED = _case("cached", Governed.CACHE_HIT, sim("a"), response_cache={"ttl_s": 600})
FAULTS = {"provider broken": Governed.INTERNAL_ERROR, "boundary broken": Governed.POLICY_EVALUATION_ERROR}


@pytest.fixture(scope="module", params=MOUTHS, ids=lambda mouth: mouth.name)
def mouth(request: pytest.FixtureRequest) -> Mouth:
    chosen: Mouth = request.param
    return chosen


@pytest.fixture(scope="module")
def site(mouth: Mouth, launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Site:
    document = bundle.document(
        *(case.purpose for case in (*CASES, CACHED)),
        withheld=("withheld",),
        budgets=[limit("workload", "poor", "hour", "0.000001")],
    )
    key = answer_key(tmp_path_factory.mktemp("key") / "key")
    return launch_shared(
        document, answer_key_file=key, scan_bytes_max=SCAN_BYTES_MAX, health_faults_max=10_000, faults=True
    )


def _line(mouth: Mouth, name: str, workload: str, text: str = "Hello", **fields: Any) -> Json:
    body = mouth.asks(body_of(text, **fields)) | {"workload" if mouth is INVOCATIONS else "model": workload}
    return {"custom_id": f"{name} {CANARY}", "method": "POST", "url": f"/v1{mouth.path}", "body": body}


def _ended(site: Site, *lines: Json) -> dict[str, Json]:
    found = results(site.caller, ended(site.caller, made(site.caller, *lines)))
    return {name: result["response"] for name, result in found.items()}


def test_every_item_ends_as_the_same_request_by_itself(mouth: Mouth, site: Site, checks: Checks) -> None:
    lines = [
        _line(mouth, name := case.purpose.workload["id"], name, case.text, max_tokens=100, **case.body)
        for case in CASES
    ]
    found = _ended(site, *lines)
    assert len(found) == len(CASES)
    for case in CASES:
        checks.item(site.caller, mouth, found[case.purpose.workload["id"]], case.code)


def test_an_item_is_answered_from_the_cache(mouth: Mouth, site: Site, checks: Checks) -> None:
    one = _line(mouth, "one", "cached")
    checks.item(site.caller, mouth, _ended(site, one)["one"], Governed.PERMITTED)
    checks.item(site.caller, mouth, _ended(site, one)["one"], Governed.CACHE_HIT)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_its_item_alone(fault: str, mouth: Mouth, site: Site, checks: Checks) -> None:
    with site.plane.fault(fault):
        response = _ended(site, _line(mouth, "one", "fine"))["one"]
    checks.item(site.caller, mouth, response, FAULTS[fault])
    checks.item(site.caller, mouth, _ended(site, _line(mouth, "one", "fine"))["one"], Governed.PERMITTED)


def test_an_item_that_is_no_request(mouth: Mouth, site: Site, checks: Checks) -> None:
    response = _ended(site, _line(mouth, "one", "fine", temperature=9))["one"]
    checks.ungoverned_item(mouth, response, ModelApi.INVALID_REQUEST, "temperature")


# What only an invocation can say in its body: a pin, a class, a deadline.


@pytest.fixture(scope="module")
def pinning(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Site:
    excluded = [case.purpose for case in EXCLUSIONS]
    dear = purpose("dear", sim("dear-one"), sim("cheap", prices={"input": 1, "output": 1}), request_limit_usd="0.0001")
    slow = purpose("slow", sim("stalls", {"latency_ms": 600_000}))
    made_of = [one._replace(workload=one.workload | {"priority": 3}) for one in (*excluded, dear, slow)]
    key = answer_key(tmp_path_factory.mktemp("key") / "key")
    return launch_shared(bundle.document(*made_of), answer_key_file=key, secrets={"THERE": "sk-there"})


def _says(case: Any) -> Json:
    declared = case.headers.get("X-TerraFlow-Data-Class"), case.headers.get("X-TerraFlow-Sensitive-Types")
    named: Json = {"data_class": declared[0], "sensitive_types": declared[1] and declared[1].split(",")}
    return {key: value for key, value in named.items() if value}


def test_a_pinned_item_ends_with_its_exclusion(pinning: Site, checks: Checks) -> None:
    lines = []
    for case in EXCLUSIONS:
        one = _line(INVOCATIONS, case.name, case.name, model=case.changed["id"], **case.body)
        lines.append(one | {"body": one["body"] | _says(case)})
    lines.append(_line(INVOCATIONS, "dear", "dear", model="dear-one"))
    found = _ended(pinning, *lines)
    for case in EXCLUSIONS:
        checks.item(pinning.caller, INVOCATIONS, found[case.name], case.code)
    checks.item(pinning.caller, INVOCATIONS, found["dear"], Governed.BUDGET_REQUEST_LIMIT)


def test_an_item_pinned_to_what_lies_outside_of_the_private_networks(
    launch: Launch, tmp_path: Path, checks: Checks
) -> None:
    document = bundle.document(purpose("night", remote("engine", 9), sim("fit"), priority=3))
    site = launch(document, answer_key_file=answer_key(tmp_path / "key"), private_networks=["10.0.0.0/8"])
    one = _line(INVOCATIONS, "one", "night", model="engine")
    checks.item(site.caller, INVOCATIONS, _ended(site, one)["one"], Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY)


def test_an_item_whose_model_is_too_slow(pinning: Site, checks: Checks) -> None:
    one = _line(INVOCATIONS, "slow", "slow")
    found = _ended(pinning, one | {"body": one["body"] | {"deadline_ms": 300}})
    checks.item(pinning.caller, INVOCATIONS, found["slow"], Governed.DEADLINE_EXPIRED)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"data_class": CANARY}, ModelApi.INVALID_DATA_CLASS),
        ({"sensitive_types": [CANARY]}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"deadline_ms": 0}, ModelApi.INVALID_DEADLINE),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_an_item_that_declares_what_is_none(said: Json, code: ModelApi, pinning: Site, checks: Checks) -> None:
    one = _line(INVOCATIONS, "one", "foreign")
    response = _ended(pinning, one | {"body": one["body"] | said})["one"]
    checks.ungoverned_item(INVOCATIONS, response, code)
