"""A contract: the versioned rules of one workload, agreed between an author and an approver.

1. Every field that the exclusion table reads is required; a missing one refuses the bundle, it never permits.
2. A contract counts only while it is approved, effective, unexpired, and in the active bundle.
3. Absent lists mean "nothing allowed"; only `families` and `jurisdictions` may say `["*"]`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from terraflow.contracts.words import (
    ClassTrigger,
    ConsequenceLabel,
    Count,
    DataClassLabel,
    Id,
    IdOrAny,
    ModelName,
    Moment,
    PersonName,
    Positive,
    TenantName,
    ToolName,
    Usd,
    says,
)
from terraflow.core.types import SensitiveType


class ContractState(StrEnum):
    """The life of a contract version."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"


class Egress(StrEnum):
    """Whether a request may leave the boundary; `burst` only while private capacity is exhausted."""

    NEVER = "never"
    BURST = "burst"
    ALLOWED = "allowed"


class StreamRule(StrEnum):
    """How an answer may flow: as it comes, or only when whole. (`windowed` comes with redaction.)"""

    FREE = "free"
    BUFFERED = "buffered"


class OutputRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an answer must satisfy before it is released."""

    json_schema: Annotated[
        dict[str, Any] | None,
        says(
            "JSON Schema that an answer must satisfy. `$ref` only inside the schema; patterns of the linear kind,"
            " without look-around or back-references; numbers in it are integers. What could cost too much to check is"
            " refused: `unevaluatedProperties`, `$dynamicRef`, references whose ways multiply. A recursion that"
            " branches is checked as deep as there is room; an answer beyond that does not satisfy it."
        ),
    ] = None
    requested_schema: Annotated[
        bool, says("Whether an answer is checked against the schema that the caller asks for, in place of this one.")
    ] = False
    repair: Annotated[bool, says("Whether an answer that fails the schema gets one attempt at repair.")] = True
    stream: Annotated[
        StreamRule, says("How a stream flows; with a schema it is always collected and checked first.")
    ] = StreamRule.FREE


class CacheRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long a validated answer may be served again for the same canonical request."""

    ttl_s: Annotated[int, Meta(ge=1, le=2_592_000), says("Seconds, at most thirty days.")]


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules of a workload. Field names are those of the bundle."""

    id: Annotated[Id, says("Its name; a bundle holds one version of it.")]
    version: Annotated[Positive, says("Counts up with every change.")]
    tenant: Annotated[TenantName, says("Whose contract it is; it governs no other tenant's workload.")]
    state: Annotated[ContractState, says("Only an `approved` one is executed.")]
    author: Annotated[PersonName, says("Who wrote it.")]
    approver: Annotated[PersonName | None, says("Who approved it: another person than the author.")]
    effective_from: Annotated[Moment, says("From when it counts.")]
    expires_at: Annotated[Moment, says("When it ceases to count.")]
    capabilities: Annotated[tuple[Id, ...], says("The capabilities it allows.")]
    families: Annotated[tuple[IdOrAny, ...], says('Families it allows; `["*"]` is every one.')]
    jurisdictions: Annotated[tuple[IdOrAny, ...], says('Jurisdictions it allows; `["*"]` is every one.')]
    consequence_tier: Annotated[
        ConsequenceLabel, says("How much harm a wrong answer can do; a capability must be approved for it.")
    ]
    egress: Annotated[Egress, says("Whether a request may leave the private boundary.")]
    training_allowed: Annotated[bool, says("Whether a provider may train on its requests.")]
    retention_days_max: Annotated[Count, says("How many days a provider may keep its requests.")]
    data_classes: Annotated[
        tuple[DataClassLabel, ...],
        says("Classes it accepts. Whoever accepts a class accepts the less sensitive ones as well."),
    ]
    sensitive_types: Annotated[tuple[SensitiveType, ...], says("Sensitive types it accepts.")]
    tiers: Annotated[tuple[Id, ...], Meta(min_length=1), says("The quality levels of its capabilities, lowest first.")]
    default_tier: Annotated[Id, says("The tier that a request asks for.")]
    aliases: Annotated[
        dict[ModelName, Id],
        says("Further names for its capabilities: a `model` of that name pins the capability."),
    ] = {}
    require_class: Annotated[bool, says("Whether a caller must declare the data class.")] = False
    require_idempotency: Annotated[bool, says("Whether a caller must send an Idempotency-Key.")] = False
    tools: Annotated[tuple[ToolName, ...], says("Names of the tools a request may offer.")] = ()
    request_limit_usd: Annotated[
        Usd | None, says("The highest worst-case cost of one request, in dollars; null is no limit.")
    ] = None
    requests_per_minute: Annotated[Positive | None, says("The workload's rate; null is no limit.")] = None
    deadline_ms: Annotated[
        int, Meta(ge=1, le=3_600_000), says("How long a request may take when its caller does not say.")
    ] = 60_000
    output_tokens_default: Annotated[
        Positive, says("The longest answer of a request that does not say, in tokens.")
    ] = 1_024
    fallback: Annotated[
        dict[Id, tuple[Id, ...]] | None,
        says(
            "What follows a capability that failed; breadth first, each capability once."
            " null: all that are permitted, in their order of rank."
        ),
    ] = None
    safe_path: Annotated[
        Id | None, says("The capability that is kept for the end, when nothing else could answer.")
    ] = None
    reasoning_budget_tokens: Annotated[
        Positive | None, says("Tokens a model may think; must be below the longest answer. null: the model's own.")
    ] = None
    output: Annotated[OutputRules, says("What an answer must satisfy.")] = OutputRules()
    response_cache: Annotated[CacheRule | None, says("Serving a validated answer again; null is off.")] = None
    baseline_capability: Annotated[
        Id | None, says("The capability at whose prices savings of the response cache are counted.")
    ] = None
    class_floor: Annotated[
        dict[ClassTrigger, DataClassLabel], says("Raises the bundle's `class_defaults`; it cannot lower them.")
    ] = {}
