"""One governed request as it travels: what arrived, and what each step has added to it.

1. A field is written by one step (named beside it) and read by later ones; None means that the step has not run.
2. Nothing here is shared between requests.
"""

from __future__ import annotations

import hashlib
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


class Exchange(msgspec.Struct, kw_only=True, eq=False):
    """The request and everything decided about it. Amounts are micro-dollars, instants monotonic seconds."""

    # What arrived (`begun`).
    request_id: RequestId
    mouth: str
    caller: KeyHolder
    declared: Declared
    request: ModelRequest
    body_digest: str
    received_at: Instant
    started: float
    deadline: float
    presence: Presence
    # check_bundle, resolve_workload
    bundle: Bundle | None = None
    resolution: Resolution | None = None
    # claim_key, limit_rate, admit
    key_digest: str | None = None
    keyed: bool = False
    note_only: bool = False
    place: Ticket | None = None
    # classify
    findings: Findings | None = None
    attachments: bool = False
    data_class: DataClass | None = None
    sensitive_types: frozenset[SensitiveType] = frozenset()
    # plan_routes
    request_sent: ModelRequest
    validator: Validator | None = None
    flows: bool = False
    facts: RequestFacts | None = None
    conditions: Mapping[str, Condition] = {}
    verdicts: tuple[Verdict, ...] = ()
    worst_cases: Mapping[str, int] = {}
    plan: Plan | None = None
    # answer_from_cache
    cache_key: str | None = None
    savings: int | None = None
    original_request_id: str | None = None
    capability: str | None = None
    # record_intent
    first_route: int = 0
    intent_recorded: bool = False
    # record_intent and the attempts: the open reservation, and what it will be posted at (None voids it)
    reservation: Reservation | None = None
    posting: int | None = None
    # call_provider, check_answer
    attempts_opened: int = 0
    held: str | None = None
    elsewhere_s: float = 0.0
    trial: Trial | None = None
    attempts: list[Attempt] = []
    answered_by: PlannedRoute | None = None
    answer: Answer | None = None
    flow: Flow | None = None
    usage: Usage = Usage()
    reasons: list[Governed] = []

    @classmethod
    def begun(
        cls,
        request_id: RequestId,
        mouth: str,
        caller: KeyHolder,
        declared: Declared,
        request: ModelRequest,
        body: bytes,
        *,
        received_at: Instant,
        started: float,
        deadline_ms_max: int,
        presence: Presence | None = None,
    ) -> Exchange:
        """A request that has arrived, as `body`; it may take until its declared deadline, at most so long. `presence`
        is given where somebody may end its waiting who does not know its id."""
        deadline_ms = min(declared.deadline_ms or deadline_ms_max, deadline_ms_max)
        return cls(
            request_id=request_id,
            mouth=mouth,
            caller=caller,
            declared=declared,
            request=request,
            body_digest=hashlib.sha256(body).hexdigest(),
            received_at=received_at,
            started=started,
            deadline=started + deadline_ms / 1000,
            presence=presence or Presence((caller.tenant, caller.application)),
            request_sent=request,
        )

    @property
    def cost(self) -> int:
        """What the attempts so far are posted at."""
        return sum([attempt.cost_micro_usd for attempt in self.attempts])

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
