"""One governed request as it travels: what arrived, and what each step has added to it.

1. A field is written by one step (named beside it) and read by later ones; None means that the step has not run.
2. Nothing here is shared between requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from terraflow.classify.findings import Findings
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability
from terraflow.contracts.plan import Plan, PlannedRoute
from terraflow.contracts.resolve import Resolution
from terraflow.contracts.routes import Condition, RequestFacts, Verdict
from terraflow.contracts.schemas import Validator
from terraflow.core.outcome import Refuse, Replay
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, Instant, MicroUsd, RequestId, SensitiveType
from terraflow.evidence.record import Attempt
from terraflow.gateway.admission_queue import Ticket
from terraflow.gateway.flow import Flow
from terraflow.gateway.running import Presence
from terraflow.gateway.trial import Trial
from terraflow.ports.store import KeyHolder, Reservation
from terraflow.ports.upstream import Answer, ModelRequest, Usage


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said in headers, already parsed; of an invocation, in the body too. `capability` is pinned by
    name, whatever the request's `model` says."""

    workload: str | None = None
    data_class: DataClass | None = None
    sensitive_types: frozenset[SensitiveType] = frozenset()
    deadline_ms: int | None = None
    idempotency_key: str | None = None
    run_id: str | None = None
    run_budget: MicroUsd | None = None
    capability: str | None = None


class Exchange:
    """The request and everything decided about it. Amounts are micro-dollars, instants monotonic seconds."""

    __slots__ = (
        "answer",
        "answered_by",
        "attachments",
        "attempts",
        "attempts_opened",
        "body_digest",
        "bundle",
        "cache_key",
        "caller",
        "capability",
        "conditions",
        "cost",
        "data_class",
        "deadline",
        "declared",
        "elsewhere_s",
        "facts",
        "findings",
        "first_route",
        "flow",
        "flows",
        "held",
        "intent_recorded",
        "key_digest",
        "keyed",
        "mouth",
        "note_only",
        "original_request_id",
        "place",
        "plan",
        "posting",
        "presence",
        "reasons",
        "received_at",
        "request",
        "request_id",
        "request_sent",
        "reservation",
        "resolution",
        "savings",
        "sensitive_types",
        "started",
        "trial",
        "usage",
        "validator",
        "verdicts",
        "worst_cases",
    )

    def __init__(
        self,
        *,
        request_id: RequestId,
        mouth: str,
        caller: KeyHolder,
        declared: Declared,
        request: ModelRequest,
        body_digest: str,
        received_at: Instant,
        started: float,
        deadline: float,
    ) -> None:
        # What arrived.
        self.request_id = request_id
        self.mouth = mouth
        self.caller = caller
        self.declared = declared
        self.request = request
        self.body_digest = body_digest
        self.received_at = received_at
        self.started = started
        self.deadline = deadline
        self.presence = Presence((caller.tenant, caller.application))
        # check_bundle, resolve_workload
        self.bundle: Bundle | None = None
        self.resolution: Resolution | None = None
        # claim_key, limit_rate, admit
        self.key_digest: str | None = None
        self.keyed = False
        self.note_only = False
        self.place: Ticket | None = None
        # classify
        self.findings: Findings | None = None
        self.attachments = False
        self.data_class: DataClass | None = None
        self.sensitive_types: frozenset[SensitiveType] = frozenset()
        # plan_routes
        self.request_sent = request
        self.validator: Validator | None = None
        self.flows = False
        self.facts: RequestFacts | None = None
        self.conditions: Mapping[str, Condition] = {}
        self.verdicts: tuple[Verdict, ...] = ()
        self.worst_cases: Mapping[str, int] = {}
        self.plan: Plan | None = None
        # answer_from_cache
        self.cache_key: str | None = None
        self.savings: int | None = None
        self.original_request_id: str | None = None
        self.capability: str | None = None
        # record_intent
        self.first_route = 0
        self.intent_recorded = False
        # record_intent and the attempts: the open reservation, and what it will be posted at (None voids it)
        self.reservation: Reservation | None = None
        self.posting: int | None = None
        # call_provider, check_answer
        self.attempts_opened = 0
        self.held: str | None = None
        self.elsewhere_s = 0.0
        self.trial: Trial | None = None
        self.attempts: list[Attempt] = []
        self.answered_by: PlannedRoute | None = None
        self.answer: Answer | None = None
        self.flow: Flow | None = None
        self.usage = Usage()
        self.cost = 0
        self.reasons: list[Governed] = []

    def definition(self, capability: str) -> Capability:
        """A capability of the bundle in force for this request."""
        assert self.bundle is not None
        return self.bundle.capabilities[capability]

    @property
    def permitted(self) -> frozenset[str]:
        """The capabilities that policy permits to this request."""
        return frozenset(verdict.capability for verdict in self.verdicts if verdict.exclusion is None)


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended, for a mouth to render. `answer` is set exactly when something is delivered;
    `structured` says that the caller asked for an answer of a schema."""

    request_id: str
    reason: Governed
    status: int
    reasons: tuple[Governed, ...]
    detail: str = ""
    details: dict[str, Any] = {}
    retry_after_s: int | None = None
    capability: str | None = None
    cost: int = 0
    savings: int | None = None
    answer: Answer | None = None
    structured: bool = False
    replay_of: str | None = None
    original_reason: str | None = None
    retry: bool = True


Ending = Refuse | Replay | None
