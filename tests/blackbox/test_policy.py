"""The policy over the wire: every exclusion as the answer to a pin, and how a request ends that is left without a
route."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, Purpose, purpose, remote, sim
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import MOUTHS, Mouth
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


class Case(NamedTuple):
    """A capability that one rule excludes, beside one that none does."""

    name: str
    code: Governed
    odd: Json
    terms: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    detail: str = ""
    foreign: bool = False
    """It is in the bundle, but not in the contract."""

    @property
    def purpose(self) -> Purpose:
        made = purpose(self.name, sim(f"fit-{self.name}"), self.changed, **self.terms)
        if self.foreign:
            made.contract["capabilities"].remove(self.changed["id"])
        return made

    @property
    def changed(self) -> Json:
        return self.odd | {"id": f"odd-{self.name}"}


def _case(name: str, code: Governed, changes: Json, **more: Any) -> Case:
    return Case(name, code, sim("odd", **changes), **more)


_OUTSIDE = {"boundary": "external"}
_VENDOR = remote("odd", 9, boundary="external", dialect="current")

# fmt: off
CASES = (
    _case("foreign",      Governed.CAPABILITY_NOT_IN_CONTRACT, {}, foreign=True),
    _case("family",       Governed.MODEL_FAMILY_NOT_ALLOWED, {"family": "other"}, terms={"families": ["sim"]}),
    _case("candidate",    Governed.LIFECYCLE_NOT_APPROVED, {"lifecycle": "candidate"}),
    _case("deprecated",   Governed.LIFECYCLE_NOT_APPROVED, {"lifecycle": "deprecated"}),
    _case("retired",      Governed.LIFECYCLE_NOT_APPROVED, {"lifecycle": "retired"}),
    _case("consequence",  Governed.CONSEQUENCE_TIER_NOT_APPROVED, {"consequence_tiers": ["moderate"]}),
    _case("egress",       Governed.EXTERNAL_EGRESS_NOT_ALLOWED, _OUTSIDE, terms={"egress": "never"}),
    _case("jurisdiction", Governed.JURISDICTION_NOT_ALLOWED, {"jurisdiction": "us"}, terms={"jurisdictions": ["eu"]}),
    _case("training",     Governed.DATA_TERMS_TRAINING, {"terms": {"trains": True, "retention_days": 0}}),
    _case("retention",    Governed.DATA_TERMS_RETENTION, {"terms": {"trains": False, "retention_days": 1}}),
    _case("class",        Governed.DATA_CLASS_EXCEEDS_CAPABILITY, {"data_class_max": "public"}),
    _case("type",         Governed.SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY, {"sensitive_types": []},
          headers=headers_of(types="pii")),
    _case("shared",       Governed.PREFIX_CACHE_SHARED, {"prefix_cache": "shared"},
          headers=headers_of(data_class="confidential")),
    _case("tools",        Governed.TOOLS_UNSUPPORTED, {"tools": False}, terms={"tools": ["look_up"]},
          body={"tools": [TOOL]}),
    _case("window",       Governed.CONTEXT_WINDOW_EXCEEDED, {"context_window_tokens": 50, "output_tokens_max": 50}),
    _case("disabled",     Governed.PROVIDER_DISABLED, {"enabled": False}),
    Case("unpriced",      Governed.PROVIDER_DISABLED, _VENDOR | {"prices": None, "secret": "env:THERE"},
         detail="PRICE_UNKNOWN"),
    Case("no-secret",     Governed.PROVIDER_DISABLED, _VENDOR, detail="SECRET_MISSING"),
    Case("unset-secret",  Governed.PROVIDER_DISABLED, _VENDOR | {"secret": "env:NOT_THERE"}, detail="SECRET_MISSING"),
    _case("burst",        Governed.BURST_ONLY_ON_CAPACITY, _OUTSIDE, terms={"egress": "burst"}),
)
# fmt: on

DOWN = {"fail": "server_error"}


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(
        bundle.document(
            *(case.purpose for case in CASES),
            purpose("nothing-fits", sim("too-closed", data_class_max="public"), sim("off", enabled=False)),
            *(purpose(f"down-{mouth.name}", sim(f"always-down-{mouth.name}", DOWN)) for mouth in MOUTHS),
            *(
                purpose(
                    f"down-and-off-{mouth.name}", sim(f"also-down-{mouth.name}", DOWN), sim("also-off", enabled=False)
                )
                for mouth in MOUTHS
            ),
            *(
                purpose(
                    f"resting-{mouth.name}",
                    sim(f"soon-{mouth.name}", DOWN),
                    sim(f"late-{mouth.name}", {"fail": "rate_limited", "retry_after_s": 60}),
                )
                for mouth in MOUTHS
            ),
            purpose("dear", sim("dear-one"), sim("dear-two"), request_limit_usd="0.0001"),
            purpose(
                "dear-or-cheap",
                sim("dear-three"),
                sim("cheap", prices={"input": 1, "output": 1}),
                request_limit_usd="0.0001",
            ),
            purpose("thinks", sim("thinker"), reasoning_budget_tokens=100),
            purpose("named", sim("first"), sim("second"), aliases={"The-Second": "second"}),
        ),
        secrets={"THERE": "sk-there"},
        health_faults_max=1,
    )


@every_mouth
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_pinned_capability_that_is_excluded_answers_with_its_exclusion(
    case: Case, site: Site, checks: Checks
) -> None:
    pinned = case.changed["id"]
    response = site.caller.ask(case.name, headers=case.headers, model=pinned, **case.body)
    facts = checks.refused(site.caller, response, case.code, detail=case.detail, capability=pinned)
    excluded = {pinned: {"reason_code": case.code, "detail": case.detail}}
    assert facts["details"] == {"excluded": excluded}


@every_mouth
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_the_pin_another_answers_and_the_record_has_the_exclusion(
    case: Case, site: Site, checks: Checks
) -> None:
    response = site.caller.ask(case.name, headers=case.headers, **case.body)
    checks.answered(site.caller, response, capability=f"fit-{case.name}")
    decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    rows = {row["capability"]: row.get("exclusion") for row in decision["policy"]}
    assert rows[f"fit-{case.name}"] is None
    assert rows[case.changed["id"]] == case.code
    assert decision["plan"] == [f"fit-{case.name}"]


@every_mouth
def test_a_private_endpoint_that_lies_outside_the_private_networks(launch: Launch, checks: Checks) -> None:
    document = bundle.document(purpose("plain", remote("engine", 9), sim("fit")))
    site = launch(document, private_networks=["10.0.0.0/8"])
    response = site.caller.ask(model="engine")
    checks.refused(site.caller, response, Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY, capability="engine")
    checks.answered(site.caller, site.caller.ask(), capability="fit")


@every_mouth
def test_no_route_is_left(site: Site, checks: Checks) -> None:
    facts = checks.refused(site.caller, site.caller.ask("nothing-fits"), Governed.NO_POLICY_PERMITTED_ROUTE)
    assert facts["details"]["excluded"] == {
        "too-closed": {"reason_code": Governed.DATA_CLASS_EXCEEDS_CAPABILITY, "detail": ""},
        "off": {"reason_code": Governed.PROVIDER_DISABLED, "detail": ""},
    }


@pytest.mark.parametrize(("workload", "capability"), [("down", "always-down"), ("down-and-off", "also-down")])
def test_health_alone_stands_in_the_way(
    workload: str, capability: str, mouth: Mouth, site: Site, checks: Checks
) -> None:
    workload, capability = f"{workload}-{mouth.name}", f"{capability}-{mouth.name}"
    failed = site.caller.ask(workload)
    checks.refused(site.caller, failed, Governed.PROVIDER_ERROR_UNRECOVERED, detail="server_error")
    response = site.caller.ask(workload)
    facts = checks.refused(site.caller, response, Governed.TIER_NOT_AVAILABLE, retry_after=True)
    assert facts["details"]["excluded"][capability]["reason_code"] == Governed.PROVIDER_UNHEALTHY
    assert 1 <= int(response.headers["retry-after"]) <= 10
    pinned = site.caller.ask(workload, model=capability)
    checks.refused(site.caller, pinned, Governed.PROVIDER_UNHEALTHY, capability=capability, retry_after=True)


@every_mouth
def test_a_pin_is_told_of_the_pinned_one_alone(mouth: Mouth, site: Site, checks: Checks) -> None:
    soon, late = f"soon-{mouth.name}", f"late-{mouth.name}"
    for capability in (soon, late):
        site.caller.ask(f"resting-{mouth.name}", model=capability)
    response = site.caller.ask(f"resting-{mouth.name}", model=late)
    facts = checks.refused(site.caller, response, Governed.PROVIDER_UNHEALTHY, capability=late, retry_after=True)
    assert facts["details"] == {"excluded": {late: {"reason_code": Governed.PROVIDER_UNHEALTHY, "detail": ""}}}
    assert 30 < int(response.headers["retry-after"]) <= 60


@every_mouth
def test_every_route_is_dearer_than_one_request_may_be(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("dear"), Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT)


@every_mouth
def test_the_pinned_route_is_dearer_than_one_request_may_be(site: Site, checks: Checks) -> None:
    pinned = site.caller.ask("dear-or-cheap", model="dear-three")
    checks.refused(site.caller, pinned, Governed.BUDGET_REQUEST_LIMIT, capability="dear-three")
    checks.answered(site.caller, site.caller.ask("dear-or-cheap"), capability="cheap", cost=1)


@every_mouth
@pytest.mark.parametrize("asked", [{}, {"max_tokens": 100}, {"max_completion_tokens": 64}])
def test_the_reasoning_budget_leaves_no_room_for_an_answer(asked: Json, site: Site, checks: Checks) -> None:
    response = site.caller.ask("thinks", **asked)
    checks.refused(site.caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="REASONING_BUDGET_EXCEEDS_OUTPUT")


def test_a_burst_goes_out_only_while_the_private_slot_is_taken(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    gate = Gate()
    engine = upstreams.open(held(gate, answer()), answer())
    inside = remote("inside", engine.port, in_flight_max=1)
    site = launch(bundle.document(purpose("bursts", inside, sim("outside", **_OUTSIDE), egress="burst")))
    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(site.caller.ask)
        until(lambda: engine.requests)
        checks.answered(site.caller, site.caller.ask(), capability="outside")
        gate.open()
        checks.answered(site.caller, holding.result(), capability="inside", cost=COST)
    checks.answered(site.caller, site.caller.ask(), capability="inside", cost=COST)


@every_mouth
@pytest.mark.parametrize("name", ["second", "The-Second"])
def test_a_capability_is_pinned_by_its_id_or_by_an_alias(name: str, site: Site, checks: Checks) -> None:
    checks.answered(site.caller, site.caller.ask("named", model=name), capability="second")


@every_vendor_mouth
def test_a_model_that_names_nothing_pins_nothing(site: Site, checks: Checks) -> None:
    checks.answered(site.caller, site.caller.ask("named", model="gpt-4o"), capability="first")
