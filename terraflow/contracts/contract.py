"""A contract: the versioned rules of one workload, agreed between an author and an approver.

1. Every field that the exclusion table reads is required; a missing one refuses the bundle, it never permits.
2. A contract counts only while it is approved, effective, unexpired, and in the active bundle.
3. Absent lists mean "nothing allowed"; only `families` and `jurisdictions` may say `["*"]`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class ContractState(StrEnum):
    """The life of a contract version."""

    DRAFT = "draft"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"


class Egress(StrEnum):
    """Whether a request may leave the boundary."""

    NEVER = "never"
    BURST = "burst"
    ALLOWED = "allowed"


class StreamRule(StrEnum):
    """How an answer may flow: as it comes, or only when whole. (`windowed` comes with redaction.)"""

    FREE = "free"
    BUFFERED = "buffered"


class OutputRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an answer must satisfy before it is released."""

    json_schema: dict[str, Any] | None = None
    repair: bool = True
    stream: StreamRule = StreamRule.FREE


class CacheRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long a validated answer may be served again for the same canonical request."""

    ttl_s: int


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules of a workload. Field names are those of the bundle."""

    id: str
    version: int
    tenant: str
    state: ContractState
    author: str
    approver: str | None
    effective_from: datetime
    expires_at: datetime
    capabilities: tuple[str, ...]
    families: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    consequence_tier: str
    egress: Egress
    training_allowed: bool
    retention_days_max: int
    data_classes: tuple[str, ...]
    sensitive_types: tuple[str, ...]
    tiers: tuple[str, ...]
    default_tier: str
    aliases: dict[str, str] = {}
    require_class: bool = False
    require_idempotency: bool = False
    tools: tuple[str, ...] = ()
    request_limit_usd: str | None = None
    requests_per_minute: int | None = None
    deadline_ms: int = 60_000
    output_tokens_default: int = 1_024
    fallback: dict[str, tuple[str, ...]] | None = None
    safe_path: str | None = None
    reasoning_budget_tokens: int | None = None
    output: OutputRules = OutputRules()
    response_cache: CacheRule | None = None
    baseline_capability: str | None = None
    class_floor: dict[str, str] = {}
