"""A capability: one routable model as the plane knows it.

1. Every field that the exclusion table reads is required: a capability whose author forgot one cannot be built, so
   an omission can never permit.
2. A paid capability without prices is never used: an unknown price does not count as zero.
3. A secret is named (`env:NAME`), never held.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from terraflow.contracts.script import Script
from terraflow.core.prices import Prices as Prices


class ProviderKind(StrEnum):
    """Which adapter speaks to the capability."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    SIMULATED = "simulated"


class Boundary(StrEnum):
    """Where the model runs, as seen from the organisation."""

    PRIVATE = "private"
    EXTERNAL = "external"


class Lifecycle(StrEnum):
    """Where a capability stands in its owner's approval."""

    CANDIDATE = "candidate"
    APPROVED = "approved"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


class PrefixCache(StrEnum):
    """Who shares the provider's prompt cache."""

    NONE = "none"
    DEDICATED = "dedicated"
    SHARED = "shared"


class ConsequenceTier(IntEnum):
    """How much harm a wrong answer can do."""

    LOW = 0
    MODERATE = 1
    HIGH = 2
    CRITICAL = 3


class DataTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider may do with what it is sent."""

    trains: bool
    retention_days: int


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One routable model. Field names are those of the bundle."""

    id: str
    provider: ProviderKind
    model: str
    family: str
    tier: str
    boundary: Boundary
    jurisdiction: str
    terms: DataTerms
    data_class_max: str
    sensitive_types: tuple[str, ...]
    consequence_tiers: tuple[str, ...]
    lifecycle: Lifecycle
    context_window_tokens: int
    output_tokens_max: int
    tools: bool
    prefix_cache: PrefixCache
    prices: Prices | None
    enabled: bool
    endpoint: str | None = None
    secret: str | None = None
    in_flight_max: int | None = None
    script: Script | None = None

    @property
    def paid(self) -> bool:
        """Whether somebody outside sends a bill: such a capability needs known prices to be used at all."""
        return self.boundary is Boundary.EXTERNAL and self.provider is not ProviderKind.SIMULATED
