"""A request's two leaves, from what its steps have decided.

1. Facts only: nothing of the request's or the answer's text, but digests and sizes.
2. The same exchange gives the same leaves; only the clock's times differ.
"""

from __future__ import annotations

import hashlib

import msgspec

from terraflow.contracts.routes import Verdict
from terraflow.evidence import record
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.plane import Plane
from terraflow.ports.store import Entry, Reservation

_encode = msgspec.json.Encoder(order="deterministic").encode


def intent_entry(plane: Plane, x: Exchange, reservation: Reservation | None) -> Entry:
    """The decision as far as it got."""
    resolution = x.resolution
    workload = None if resolution is None else resolution.workload
    request = _request(x)
    if type(request) is not record.Request:
        raise TypeError("the request's facts are unknown")
    intent = record.Intent(
        schema=record.SCHEMA,
        request_id=x.request_id,
        tenant=x.caller.tenant,
        time=record.rfc3339(plane.clock.now()),
        application=x.caller.application,
        mouth=x.mouth,
        business_unit=None if workload is None else workload.business_unit,
        workload=None if workload is None else workload.id,
        priority=None if workload is None else int(workload.priority),
        bundle=None if x.bundle is None else record.Bundle(sequence=x.bundle.sequence, digest=x.bundle.digest),
        contract=None
        if workload is None
        else record.Contract(id=workload.contract.id, version=workload.contract.version),
        request=request,
        run=None
        if x.declared.run_id is None
        else record.Run(id=x.declared.run_id, budget_micro_usd=x.declared.run_budget),
        policy=tuple([_policy_row(x, verdict) for verdict in x.verdicts]),
        plan=() if x.plan is None else tuple([route.capability.id for route in x.plan.routes]),
        reserved_micro_usd=0 if reservation is None else reservation.amount,
        reserved=()
        if reservation is None
        else tuple([record.Window(level=n.level, of=n.of, window=n.window_key) for n in reservation.lines]),
    )
    return _entry(x, "intent", intent)


def _request(x: Exchange) -> record.Request:
    declared, findings, facts = x.declared, x.findings, x.facts
    scan = None
    if findings is not None and x.data_class is not None:
        scan = record.Scan(
            data_class=x.data_class.label,
            types=tuple(sorted(x.sensitive_types)),
            detectors=dict(findings.counts),
            bytes=findings.bytes_scanned,
            attachments=x.attachments,
        )
    tools = None
    if x.request.tool_names:
        offered = [x.request.document.get(name) for name in ("tools", "functions", "web_search_options")]
        tools = record.Tools(count=len(x.request.tool_names), digest=record.digest(_encode(offered)))
    return record.Request(
        digest=x.body_digest,
        bytes=x.request.size_bytes,
        declared_class=None if declared.data_class is None else declared.data_class.label,
        declared_types=tuple(sorted(declared.sensitive_types)),
        scan=scan,
        tools=tools,
        stream=x.request.stream,
        pinned=None if x.resolution is None else x.resolution.pinned,
        max_output_tokens=None if facts is None else facts.output_tokens_max,
        input_bytes=None if facts is None else facts.input_bytes,
        audio=x.request.audio,
        deadline_ms=round((x.deadline - x.started) * 1000),
        idempotency_key_digest=x.key_digest,
    )


def _policy_row(x: Exchange, verdict: Verdict) -> record.PolicyRow:
    condition = x.conditions.get(verdict.capability)
    if condition is None:
        return record.PolicyRow(capability=verdict.capability, exclusion=verdict.exclusion, detail=verdict.detail)
    return record.PolicyRow(
        capability=verdict.capability,
        exclusion=verdict.exclusion,
        detail=verdict.detail,
        enabled=condition.enabled,
        secret_present=condition.secret_present,
        healthy=condition.healthy,
        inside_boundary=condition.inside_boundary,
        has_free_slot=condition.has_free_slot,
        recent_faults=condition.recent_faults,
        under_pressure=condition.under_pressure,
        worst_case_micro_usd=x.worst_cases.get(verdict.capability),
    )


def outcome_entry(plane: Plane, x: Exchange, closed: Closed) -> Entry:
    """How the request ended."""
    outcome = record.Outcome(
        schema=record.SCHEMA,
        request_id=x.request_id,
        tenant=x.caller.tenant,
        time=record.rfc3339(plane.clock.now()),
        reason_code=closed.reason,
        status=closed.status,
        reasons=closed.reasons,
        detail=closed.detail or None,
        capability=closed.capability,
        original_request_id=closed.replay_of or x.original_request_id,
        attempts=tuple(x.attempts),
        usage=None if not x.attempts else _total(x),
        cost_micro_usd=x.cost,
        savings_micro_usd=closed.savings or 0,
        answer=_answer(x, closed),
        validation=() if x.validator is None else ("json_schema",),
    )
    return _entry(x, "outcome", outcome)


def _total(x: Exchange) -> record.Usage | None:
    used = [attempt.usage for attempt in x.attempts if attempt.usage is not None]
    if len(used) < 2:
        return used[0] if used else None
    totals = {name: sum(getattr(usage, name) for usage in used) for name in record.Usage.__struct_fields__}
    return record.Usage(**totals)


def _answer(x: Exchange, closed: Closed) -> record.Answer | None:
    """Digest and size of what was released: the choices of a whole answer in deterministic JSON, or the bytes of the
    events of a stream that flowed."""
    if x.flow is not None:
        return record.Answer(digest=x.flow.digest(), bytes=x.flow.sent_bytes)
    if closed.answer is None:
        return None
    raw = _encode(closed.answer.choices)
    return record.Answer(digest=hashlib.sha256(raw).hexdigest(), bytes=len(raw))


def _entry(x: Exchange, kind: str, leaf: record.Record) -> Entry:
    return Entry(x.caller.tenant, x.caller.application, x.request_id, kind, record.encode(leaf))
