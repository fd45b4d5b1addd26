"""The order of what the exclusion table left: which capability answers, which follow when it fails.

1. Only a permitted capability whose worst case is within the contract's per-request limit, and whose answer has
   room for the contract's reasoning budget, is ever in a plan: as first route, as fallback or as safe path.
2. Rank: those with room first, which is a free slot and no pressure; then the tier that the contract asks for, then
   the nearest tier, upwards before downwards; then the lower worst case; then the fewer recent faults; then the
   bundle's order.
3. The contract's safe path is not ranked: it comes last, and is marked.
4. Without a fallback graph the ranking is the order of fallback. With one, only its edges count: breadth first
   from the first route, each capability once, so that a cycle ends. An edge leads on through a capability that is
   itself excluded, as it would through one that failed.
5. A pin asks for one capability: nothing else is ranked, and only what the contract names itself (the graph's
   edges from the pinned one, and the safe path) may follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from terraflow.contracts.capability import Capability
from terraflow.contracts.exact import PolicyEvaluationError
from terraflow.contracts.routes import Condition, RequestFacts, Route, Verdict, answer_tokens_max, evaluate
from terraflow.contracts.workload import Workload
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed

REASONING_DETAIL = "REASONING_BUDGET_EXCEEDS_OUTPUT"

WorstCase = Callable[[Capability, int], int]
"""The most that one attempt can cost in micro-dollars, of a capability and the answer's most tokens."""


class Role(StrEnum):
    """Why a capability is in the plan."""

    PRIMARY = "primary"
    FALLBACK = "fallback"
    SAFE_PATH = "safe_path"


class PlannedRoute(msgspec.Struct, frozen=True):
    """A capability to call, in its place; the answer's most tokens is what is sent to it, always."""

    capability: Capability
    role: Role
    worst_case_micro_usd: int
    output_tokens_max: int


class Plan(msgspec.Struct, frozen=True):
    """Routes in the order in which they are called; at least one."""

    routes: tuple[PlannedRoute, ...]


class Decision(msgspec.Struct, frozen=True):
    """Step 11 as a whole: every capability's verdict, the worst case of each permitted one, and the plan."""

    verdicts: tuple[Verdict, ...]
    worst_cases: dict[str, int]
    outcome: Plan | Refuse


def decide_routes(
    workload: Workload,
    facts: RequestFacts,
    conditions: Mapping[str, Condition],
    worst_case: WorstCase,
    pinned: str | None = None,
) -> Decision:
    """Evaluate and plan. Never raises: whatever fails, in whatever way, is POLICY_EVALUATION_ERROR."""
    try:
        verdicts = evaluate(workload.survey, facts, conditions)
        worst_cases = {
            route.capability.id: worst_case(route.capability.definition, answer_tokens_max(route.capability, facts))
            for route, verdict in zip(workload.survey.routes, verdicts, strict=True)
            if verdict.exclusion is None
        }
        outcome = plan(workload, facts, verdicts, conditions, worst_cases, pinned=pinned)
        _require_permitted(outcome, worst_cases)
        return Decision(verdicts, worst_cases, outcome)
    except Exception as error:
        detail = str(error) if isinstance(error, PolicyEvaluationError) else type(error).__name__
        return Decision((), {}, Refuse(reason=Governed.POLICY_EVALUATION_ERROR, details={"fault": detail}))


def _require_permitted(outcome: Plan | Refuse, permitted: Mapping[str, int]) -> None:
    if type(outcome) is Refuse:
        return
    if type(outcome) is not Plan or not outcome.routes:
        raise PolicyEvaluationError("there is no plan")
    if any(type(route) is not PlannedRoute or route.capability.id not in permitted for route in outcome.routes):
        raise PolicyEvaluationError("a planned route was not permitted")


def plan(
    workload: Workload,
    facts: RequestFacts,
    verdicts: tuple[Verdict, ...],
    conditions: Mapping[str, Condition],
    worst_cases: Mapping[str, int],
    *,
    pinned: str | None = None,
) -> Plan | Refuse:
    """The plan, or the refusal of step 11. `worst_cases` (micro-dollars) holds every permitted capability.

    Raises PolicyEvaluationError if the verdicts are not those of the workload's capabilities or a cost is none.
    """
    permitted = _permitted(workload, facts, verdicts, worst_cases)
    if pinned is not None:
        verdict = next((verdict for verdict in verdicts if verdict.capability == pinned), None)
        if verdict is None:
            raise PolicyEvaluationError("the pinned capability was not looked at")
        if verdict.exclusion is not None:
            return Refuse(reason=verdict.exclusion, detail=verdict.detail)
    if not permitted:
        waits = any(verdict.awaits_health for verdict in verdicts)
        return Refuse(reason=Governed.TIER_NOT_AVAILABLE if waits else Governed.NO_POLICY_PERMITTED_ROUTE)
    limit = workload.survey.contract.request_limit_micro_usd
    within = {name: way for name, way in permitted.items() if limit is None or way.worst_case_micro_usd <= limit}
    if pinned is not None and pinned not in within:
        return Refuse(reason=Governed.BUDGET_REQUEST_LIMIT)
    if not within:
        return Refuse(reason=Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT)
    thinking = workload.contract.reasoning_budget_tokens or 0
    usable = {name: way for name, way in within.items() if thinking < way.output_tokens_max}
    if not usable or (pinned is not None and pinned not in usable):
        return Refuse(reason=Governed.PROVIDER_REJECTED_REQUEST, detail=REASONING_DETAIL)
    return Plan(_ordered(workload, usable, conditions, pinned))


class _Way(msgspec.Struct, frozen=True):
    route: Route
    worst_case_micro_usd: int
    output_tokens_max: int


def _permitted(
    workload: Workload, facts: RequestFacts, verdicts: tuple[Verdict, ...], worst_cases: Mapping[str, int]
) -> dict[str, _Way]:
    routes = workload.survey.routes
    if type(verdicts) is not tuple or len(verdicts) != len(routes):
        raise PolicyEvaluationError("not every capability has a verdict")
    ways: dict[str, _Way] = {}
    for route, verdict in zip(routes, verdicts, strict=True):
        if type(verdict) is not Verdict or verdict.capability != route.capability.id:
            raise PolicyEvaluationError("a verdict is not of its capability")
        if verdict.exclusion is None:
            cost = worst_cases.get(route.capability.id)
            if type(cost) is not int or cost < 0:
                raise PolicyEvaluationError("a permitted capability has no worst case")
            ways[route.capability.id] = _Way(route, cost, answer_tokens_max(route.capability, facts))
    return ways


def _ordered(
    workload: Workload, usable: dict[str, _Way], conditions: Mapping[str, Condition], pinned: str | None
) -> tuple[PlannedRoute, ...]:
    safe = workload.contract.safe_path
    graph = workload.contract.fallback
    ranked = [name for name in usable if name != safe]
    if pinned is not None:
        order = [pinned, *_follow(graph or {}, pinned)]
    elif len(ranked) > 1:
        asked = workload.tier_rank[workload.contract.default_tier]
        ranked.sort(key=lambda name: _rank(usable[name], workload, conditions[name], asked))
        order = ranked if graph is None else [ranked[0], *_follow(graph, ranked[0])]
    else:
        order = ranked if graph is None or not ranked else [ranked[0], *_follow(graph, ranked[0])]
    first = order[0] if order else None
    planned = [
        _planned(usable[name], Role.PRIMARY if name == first else Role.FALLBACK)
        for name in order
        if name in usable and (name != safe or name == pinned)
    ]
    if safe is not None and safe in usable and safe != pinned:
        planned.append(_planned(usable[safe], Role.SAFE_PATH))
    return tuple(planned)


def _planned(way: _Way, role: Role) -> PlannedRoute:
    return PlannedRoute(way.route.capability.definition, role, way.worst_case_micro_usd, way.output_tokens_max)


def _rank(way: _Way, workload: Workload, condition: Condition, asked: int) -> tuple[bool, int, bool, int, int]:
    """Smaller comes first; sorting is stable, so that the bundle's order decides what is equal."""
    tier = workload.tier_rank[way.route.capability.tier]
    return (
        not condition.has_room,
        abs(tier - asked),
        tier < asked,
        way.worst_case_micro_usd,
        condition.recent_faults,
    )


def _follow(graph: Mapping[str, tuple[str, ...]], first: str) -> list[str]:
    """What the graph leads to from `first`, breadth first, without it."""
    seen = [first]
    for name in seen:
        seen += [target for target in graph.get(name, ()) if target not in seen]
    return seen[1:]
