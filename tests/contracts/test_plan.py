"""The order of what is left, each refusal of step 11, and that no fault ever makes a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from terraflow.contracts import plan as planning
from terraflow.contracts.capability import Capability
from terraflow.contracts.exact import PolicyEvaluationError
from terraflow.contracts.plan import Decision, Plan, Role, decide_routes, plan
from terraflow.contracts.routes import Condition, RequestFacts, Verdict
from terraflow.contracts.workload import Workload
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass
from tests.contracts.samples import capability, external, workload

WELL = Condition(
    enabled=True, secret_present=True, healthy=True, inside_boundary=True, has_free_slot=True, under_pressure=False
)
ILL = Condition(
    enabled=True, secret_present=True, healthy=False, inside_boundary=True, has_free_slot=True, under_pressure=False
)
OFF = Condition(
    enabled=False, secret_present=True, healthy=True, inside_boundary=True, has_free_slot=True, under_pressure=False
)
FULL = Condition(
    enabled=True, secret_present=True, healthy=True, inside_boundary=True, has_free_slot=False, under_pressure=False
)
SHAKY = Condition(
    enabled=True,
    secret_present=True,
    healthy=True,
    inside_boundary=True,
    has_free_slot=True,
    under_pressure=False,
    recent_faults=2,
)


def facts(**changes: Any) -> RequestFacts:
    usual: dict[str, Any] = {
        "data_class": DataClass.INTERNAL, "sensitive_types": frozenset(), "tools_offered": False,
        "input_bytes": 100, "output_tokens_max": 500, "audio": False,
    }  # fmt: skip
    return RequestFacts(**(usual | changes))


def decide(
    under: Workload,
    costs: Mapping[str, int] | None = None,
    states: Mapping[str, Condition] | None = None,
    pinned: str | None = None,
    **request: Any,
) -> Decision:
    conditions = {route.capability.id: WELL for route in under.survey.routes} | dict(states or {})
    return decide_routes(under, facts(**request), conditions, lambda m, _: (costs or {}).get(m.id, 10), pinned)


def order(decision: Decision) -> list[tuple[str, str]]:
    assert isinstance(decision.outcome, Plan), decision.outcome
    return [(route.capability.id, route.role.value) for route in decision.outcome.routes]


def names(decision: Decision) -> list[str]:
    return [name for name, _ in order(decision)]


def refusal(decision: Decision) -> tuple[object, str]:
    assert isinstance(decision.outcome, Refuse)
    return decision.outcome.reason, decision.outcome.detail


THREE = [capability("a"), capability("b"), capability("c")]
TIERS = [capability("low", tier="basic"), capability("mid"), capability("top", tier="premium")]


def test_cost_then_faults_then_the_bundles_order_rank_equal_tiers() -> None:
    assert names(decide(workload(THREE))) == ["a", "b", "c"]
    assert names(decide(workload(THREE), {"a": 30, "b": 20})) == ["c", "b", "a"]
    assert names(decide(workload(THREE), states={"a": SHAKY})) == ["b", "c", "a"]
    assert names(decide(workload(THREE), {"a": 9}, {"a": SHAKY})) == ["a", "b", "c"]
    assert order(decide(workload(THREE)))[0] == ("a", "primary")
    assert {role for _, role in order(decide(workload(THREE)))[1:]} == {"fallback"}


def test_the_tier_that_is_asked_for_comes_first_then_the_nearest_upwards_first() -> None:
    levels = {"tiers": ["basic", "standard", "premium"]}
    dear = {"low": 1, "mid": 50, "top": 99}
    assert names(decide(workload(TIERS, **levels), dear)) == ["mid", "top", "low"]
    assert names(decide(workload(TIERS, **levels, default_tier="basic"), dear)) == ["low", "mid", "top"]
    assert names(decide(workload(TIERS, **levels, default_tier="premium"), dear)) == ["top", "mid", "low"]


def test_a_full_capability_comes_after_every_one_with_a_free_slot() -> None:
    levels = {"tiers": ["basic", "standard", "premium"]}
    assert names(decide(workload(TIERS, **levels), states={"mid": FULL})) == ["top", "low", "mid"]


def test_under_burst_the_external_one_answers_while_the_private_one_is_full() -> None:
    under = workload([capability("in-house"), external("outside")], egress="burst")
    assert names(decide(under, {"in-house": 0})) == ["in-house"]
    assert names(decide(under, {"in-house": 0}, {"in-house": FULL})) == ["outside", "in-house"]
    assert names(decide(under, {"in-house": 0}, {"in-house": ILL})) == ["outside"]
    assert refusal(decide(under, {"in-house": 0}, {"in-house": OFF})) == (Governed.NO_POLICY_PERMITTED_ROUTE, "")


def test_a_fallback_graph_replaces_the_ranking_and_a_cycle_in_it_ends() -> None:
    four = [*THREE, capability("d")]
    graph = {"a": ["c"], "c": ["b", "a"], "b": ["a", "c"]}
    assert order(decide(workload(four, fallback=graph))) == [("a", "primary"), ("c", "fallback"), ("b", "fallback")]
    assert names(decide(workload(four, fallback={}))) == ["a"]
    assert names(decide(workload(four, fallback={"a": ["d", "b"], "d": ["c"]}))) == ["a", "d", "b", "c"]
    assert names(decide(workload(four, fallback=graph), states={"a": ILL})) == ["b", "c"]


def test_an_edge_leads_on_through_an_excluded_capability_and_never_to_one() -> None:
    graph = {"a": ["b"], "b": ["c"]}
    assert names(decide(workload(THREE, fallback=graph), states={"b": OFF})) == ["a", "c"]
    limited = workload(THREE, fallback=graph, request_limit_usd="0.000015")
    assert names(decide(limited, {"b": 16})) == ["a", "c"]


def test_the_safe_path_comes_last_and_is_marked_wherever_it_would_rank() -> None:
    under = workload(THREE, safe_path="a")
    assert order(decide(under, {"a": 0})) == [("b", "primary"), ("c", "fallback"), ("a", "safe_path")]
    graph = workload(THREE, safe_path="a", fallback={"b": ["a", "c"]})
    assert order(decide(graph)) == [("b", "primary"), ("c", "fallback"), ("a", "safe_path")]
    assert order(decide(under, states={"b": OFF, "c": OFF})) == [("a", "safe_path")]
    assert names(decide(under, states={"a": OFF})) == ["b", "c"]
    assert names(decide(workload(THREE, safe_path="a", request_limit_usd="0.000015"), {"a": 16})) == ["b", "c"]


def test_a_pin_is_followed_only_by_what_the_contract_names() -> None:
    assert order(decide(workload(THREE), pinned="c")) == [("c", "primary")]
    graph = workload(THREE, fallback={"c": ["b"], "a": ["b"]}, safe_path="a")
    assert order(decide(graph, pinned="c")) == [("c", "primary"), ("b", "fallback"), ("a", "safe_path")]
    assert order(decide(graph, pinned="a")) == [("a", "primary"), ("b", "fallback")]


def test_a_pinned_capability_that_is_excluded_gives_its_own_code() -> None:
    under = workload([*THREE[:2], capability("c", lifecycle="candidate"), external("d")])
    assert refusal(decide(under, pinned="c")) == (Governed.LIFECYCLE_NOT_APPROVED, "")
    assert refusal(decide(under, states={"b": ILL}, pinned="b")) == (Governed.PROVIDER_UNHEALTHY, "")
    gone = Condition(
        enabled=True, secret_present=False, healthy=True, inside_boundary=True, has_free_slot=True, under_pressure=False
    )
    assert refusal(decide(under, states={"d": gone}, pinned="d")) == (Governed.PROVIDER_DISABLED, "SECRET_MISSING")


def test_with_none_left_health_alone_makes_the_difference() -> None:
    under = workload(THREE)
    off = {"a": OFF, "b": OFF, "c": OFF}
    assert refusal(decide(under, states=off)) == (Governed.NO_POLICY_PERMITTED_ROUTE, "")
    assert refusal(decide(under, states=off | {"b": ILL})) == (Governed.TIER_NOT_AVAILABLE, "")
    outside = workload([capability("in-house"), external("outside")], egress="burst")
    both = {"in-house": OFF, "outside": ILL}
    assert refusal(decide(outside, states=both)) == (Governed.NO_POLICY_PERMITTED_ROUTE, "")
    assert refusal(decide(outside, states={"in-house": ILL, "outside": ILL})) == (Governed.TIER_NOT_AVAILABLE, "")


def test_the_per_request_limit_holds_for_every_route() -> None:
    under = workload(THREE, request_limit_usd="0.000015")
    assert names(decide(under, {"a": 16, "b": 15})) == ["c", "b"]
    above = {"a": 16, "b": 16, "c": 16}
    assert refusal(decide(under, above)) == (Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT, "")
    assert refusal(decide(under, {"a": 16}, pinned="a")) == (Governed.BUDGET_REQUEST_LIMIT, "")


def test_a_reasoning_budget_must_leave_room_for_an_answer() -> None:
    detail = "REASONING_BUDGET_EXCEEDS_OUTPUT"
    under = workload([capability("a", output_tokens_max=300), capability("b")], reasoning_budget_tokens=400)
    assert names(decide(under)) == ["b"]
    assert refusal(decide(under, pinned="a")) == (Governed.PROVIDER_REJECTED_REQUEST, detail)
    assert refusal(decide(under, output_tokens_max=400)) == (Governed.PROVIDER_REJECTED_REQUEST, detail)
    assert names(decide(under, output_tokens_max=401)) == ["b"]


def test_what_is_sent_as_the_longest_answer_is_within_the_capabilitys_own() -> None:
    asked: list[tuple[str, int]] = []

    def worst_case(model: Capability, output_tokens_max: int) -> int:
        asked.append((model.id, output_tokens_max))
        return output_tokens_max

    under = workload([capability("a", output_tokens_max=300), capability("b", enabled=False), capability("c")])
    conditions = dict.fromkeys("abc", WELL)
    decision = decide_routes(under, facts(), conditions, worst_case)
    assert asked == [("a", 300), ("c", 500)]
    assert decision.worst_cases == {"a": 300, "c": 500}
    assert isinstance(decision.outcome, Plan)
    assert [(r.output_tokens_max, r.worst_case_micro_usd, r.role) for r in decision.outcome.routes] == [
        (300, 300, Role.PRIMARY),
        (500, 500, Role.FALLBACK),
    ]


BAD: list[Any] = [None, float("nan"), "", (), 1.0, -1, True, "12"]


@pytest.mark.parametrize("cost", BAD, ids=repr)
def test_a_cost_that_is_none_never_makes_a_plan(cost: Any) -> None:
    decision = decide_routes(workload(THREE), facts(), dict.fromkeys("abc", WELL), lambda *_: cost)
    assert refusal(decision)[0] is Governed.POLICY_EVALUATION_ERROR


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


FAULTS: dict[str, Callable[..., Any]] = {
    "exception": raising(RuntimeError("boom")),
    "timeout": raising(TimeoutError()),
    "none": lambda *_, **__: None,
    "nan": lambda *_, **__: float("nan"),
    "wrong type": lambda *_, **__: "yes",
    "empty": lambda *_, **__: (),
}

CALLS = ["evaluate", "plan", "_permitted", "_ordered", "_planned", "answer_tokens_max"]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("call", [*CALLS, "worst case"])
def test_a_fault_at_any_call_of_the_decision_gives_no_plan(
    call: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    worst_case = fault if call == "worst case" else lambda *_: 10
    if call in CALLS:
        monkeypatch.setattr(planning, call, fault)
    decision = decide_routes(workload(THREE), facts(), dict.fromkeys("abc", WELL), worst_case)
    assert isinstance(decision.outcome, Refuse)


def test_a_fault_says_what_failed_and_repeats_nothing_else() -> None:
    decision = decide_routes(workload(THREE), facts(), dict.fromkeys("abc", WELL), raising(RuntimeError("sk-secret")))
    assert isinstance(decision.outcome, Refuse)
    assert decision.outcome.details == {"fault": "RuntimeError"}
    assert decision.verdicts == ()


def test_verdicts_that_are_not_the_workloads_are_refused() -> None:
    under = workload(THREE)
    conditions = dict.fromkeys("abc", WELL)
    costs = dict.fromkeys("abc", 1)
    right = tuple(Verdict(name) for name in "abc")
    assert isinstance(plan(under, facts(), right, conditions, costs), Plan)
    for verdicts in (right[:2], right[::-1], (), None, (*right[:2], None), list(right)):
        with pytest.raises(PolicyEvaluationError):
            plan(under, facts(), verdicts, conditions, costs)  # type: ignore[arg-type]
    with pytest.raises(PolicyEvaluationError):
        plan(under, facts(), right, conditions, costs, pinned="ghost")
