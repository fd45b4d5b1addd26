"""Step 11: the whole policy table, the plan, and what will be sent and checked because of the contract."""

from __future__ import annotations

import functools

import msgspec

from terraflow.contracts.capability import Capability
from terraflow.contracts.contract import StreamRule
from terraflow.contracts.plan import Decision, Plan, decide_routes
from terraflow.contracts.routes import Condition, RequestFacts
from terraflow.contracts.schemas import SchemaInvalid, compile_requested
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.pricing import worst_case_of
from terraflow.gateway.routing import has_room, rested_in_s


async def plan_routes(plane: Plane, x: Exchange) -> StepOutcome:
    """A plan, or one of step 11's codes; the verdict on every capability goes into the record either way."""
    assert x.resolution is not None and x.data_class is not None
    workload, pinned = x.resolution.workload, x.resolution.pinned
    try:
        _apply_output_rules(x)
    except SchemaInvalid:
        # The contract's own schema was compiled with its bundle: this is the caller's.
        return Refuse(reason=Governed.PROVIDER_REJECTED_REQUEST, detail="RESPONSE_SCHEMA_INVALID")
    x.facts = RequestFacts(
        data_class=x.data_class,
        sensitive_types=x.sensitive_types,
        tools_offered=bool(x.request.tool_names),
        input_bytes=x.request_sent.input_bound,
        output_tokens_max=x.request.output_tokens_max or workload.contract.output_tokens_default,
        audio=x.request.audio,
    )
    x.conditions = _conditions(plane, x)
    decision = decide_routes(
        workload, x.facts, x.conditions, lambda c, most: worst_case_of(c, x.request_sent, most), pinned
    )
    if type(decision) is not Decision:
        raise TypeError("the policy gave no decision")
    x.verdicts, x.worst_cases = decision.verdicts, decision.worst_cases
    outcome = decision.outcome
    if type(outcome) is Plan and outcome.routes:
        x.plan = outcome
        return CONTINUE
    if type(outcome) is not Refuse:
        raise TypeError("the policy gave neither a plan nor a refusal")
    return _explained(plane, x, outcome)


def _conditions(plane: Plane, x: Exchange) -> dict[str, Condition]:
    assert x.bundle is not None and x.resolution is not None
    now, capabilities = plane.clock.monotonic(), x.bundle.capabilities
    return {name: _condition(plane, capabilities[name], now) for name in x.resolution.workload.survey.open}


@functools.lru_cache(maxsize=1024, typed=True)
def _state(**state: bool) -> Condition:
    """The condition of these values: its check of their types is done once for each that there is."""
    return Condition(**state)


def _condition(plane: Plane, capability: Capability, now: float) -> Condition:
    return _state(
        enabled=True,
        secret_present=plane.providers.ready(capability),
        healthy=plane.health.healthy(capability.id, now),
        inside_boundary=plane.providers.inside_boundary(capability),
        has_free_slot=has_room(plane, capability),
        recent_faults=plane.health.recent_faults(capability.id),
        under_pressure=capability.fleet is not None and plane.providers.under_pressure(capability),
    )


def _apply_output_rules(x: Exchange) -> None:
    """What the contract demands of the answer: its schema is asked of the model unless the caller asks for its own, and
    an answer that has to be whole before it may go does not flow."""
    assert x.resolution is not None
    workload = x.resolution.workload
    rules, request = workload.contract.output, x.request
    x.validator = workload.answer_schema
    if request.output_schema and (rules.requested_schema or request.checkable_schema):
        requested = compile_requested(request.output_schema)
        if rules.requested_schema:
            x.validator = requested
    if rules.json_schema is not None and request.document.get("response_format") is None:
        wanted = {"name": "answer", "schema": rules.json_schema}
        asked = {"type": "json_schema", "json_schema": wanted}
        added = len(msgspec.json.encode(asked))
        x.request_sent = msgspec.structs.replace(
            request,
            document={**request.document, "response_format": asked},
            output_schema=rules.json_schema,
            size_bytes=request.size_bytes + added,
        )
    x.flows = request.stream and x.validator is None and rules.stream is StreamRule.FREE


def _explained(plane: Plane, x: Exchange, refuse: Refuse) -> Refuse:
    """The refusal with each capability that was asked for and why it was left out: the pinned one, else the contract's;
    and how long those that rest do so."""
    assert x.resolution is not None
    pinned, allowed = x.resolution.pinned, x.resolution.workload.contract.capabilities
    asked_for = allowed if pinned is None else (pinned,)
    excluded = {
        v.capability: {"reason_code": v.exclusion, "detail": v.detail}
        for v in x.verdicts
        if v.exclusion is not None and v.capability in asked_for
    }
    refuse = msgspec.structs.replace(refuse, details={**refuse.details, "excluded": excluded})
    if refuse.reason not in (Governed.TIER_NOT_AVAILABLE, Governed.PROVIDER_UNHEALTHY):
        return refuse
    resting = [v.capability for v in x.verdicts if v.awaits_health] if pinned is None else [pinned]
    wait_s = rested_in_s(plane, resting)
    return msgspec.structs.replace(refuse, retry_after_s=wait_s)
