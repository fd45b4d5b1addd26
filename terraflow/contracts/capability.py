"""A capability: one routable model as the plane knows it.

1. Every field that the exclusion table reads is required: a capability whose author forgot one cannot be built, so
   an omission can never permit.
2. A paid capability without prices is never used: an unknown price does not count as zero.
3. A secret is named (`env:NAME`), never held.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from terraflow.contracts.fleet import Fleet
from terraflow.contracts.script import Script
from terraflow.contracts.words import (
    ConsequenceLabel,
    Count,
    DataClassLabel,
    Id,
    ModelName,
    Positive,
    SecretName,
    says,
)
from terraflow.core.prices import Prices as Prices
from terraflow.core.types import SensitiveType


class ProviderKind(StrEnum):
    """Which adapter speaks to the capability."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    FLEET = "fleet"
    """Several replicas of one model, each an OpenAI-compatible engine."""
    SIMULATED = "simulated"


class Dialect(StrEnum):
    """How an endpoint departs from its vendor's own API today; the adapters' tables say what follows."""

    CURRENT = "current"
    """The vendor's own API: OpenAI's with `max_completion_tokens`, Anthropic's with adaptive thinking."""
    SELF_HOSTED = "self_hosted"
    """An OpenAI-compatible engine (vLLM, SGLang, llama.cpp): the output limit is `max_tokens`."""
    BUDGETED_THINKING = "budgeted_thinking"
    """A Claude model that thinks only within a token budget (4.5 and earlier)."""


DIALECTS: dict[ProviderKind, frozenset[Dialect]] = {
    ProviderKind.OPENAI: frozenset({Dialect.CURRENT, Dialect.SELF_HOSTED}),
    ProviderKind.ANTHROPIC: frozenset({Dialect.CURRENT, Dialect.BUDGETED_THINKING}),
    ProviderKind.FLEET: frozenset({Dialect.CURRENT, Dialect.SELF_HOSTED}),
    ProviderKind.SIMULATED: frozenset({Dialect.CURRENT}),
}
"""The dialects that each kind of provider speaks."""


class Boundary(StrEnum):
    """Where the model runs, as seen from the organisation."""

    PRIVATE = "private"
    EXTERNAL = "external"


class Lifecycle(StrEnum):
    """Where a capability stands in its owner's approval; only an approved one is used."""

    CANDIDATE = "candidate"
    APPROVED = "approved"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


class PrefixCache(StrEnum):
    """Who shares the provider's prompt cache."""

    NONE = "none"
    DEDICATED = "dedicated"
    SHARED = "shared"


class DataTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider may do with what it is sent."""

    trains: Annotated[bool, says("Whether the provider may train on it.")]
    retention_days: Annotated[Count, says("How many days the provider keeps it; 0 is not at all.")]


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One routable model. Field names are those of the bundle."""

    id: Annotated[Id, says("Its name everywhere: in contracts, in `model` to pin it, in answers and in evidence.")]
    provider: Annotated[ProviderKind, says("Which adapter speaks to it.")]
    model: Annotated[ModelName, says("The model's name as the provider spells it.")]
    family: Annotated[Id, says("The family that contracts allow or do not.")]
    tier: Annotated[Id, says("Its quality level, one of the `tiers` of every contract that lists it.")]
    boundary: Annotated[Boundary, says("Whether it runs inside the organisation's private networks.")]
    jurisdiction: Annotated[Id, says("Where it processes data.")]
    terms: Annotated[DataTerms, says("The provider's terms for what it is sent.")]
    data_class_max: Annotated[DataClassLabel, says("The most sensitive class it may receive.")]
    sensitive_types: Annotated[tuple[SensitiveType, ...], says("Sensitive types it may receive.")]
    consequence_tiers: Annotated[tuple[ConsequenceLabel, ...], says("Consequence tiers it is approved for.")]
    lifecycle: Annotated[Lifecycle, says("Its owner's approval; only `approved` is used.")]
    context_window_tokens: Annotated[Positive, says("Tokens of prompt and answer together.")]
    output_tokens_max: Annotated[Positive, says("The longest answer it can write, in tokens.")]
    tools: Annotated[bool, says("Whether it can use tools.")]
    prefix_cache: Annotated[
        PrefixCache, says("Who shares its prompt cache; `shared` never gets confidential data or above.")
    ]
    prices: Annotated[
        Prices | None,
        says(
            "What it costs, micro-dollars per million tokens; null is unknown, which switches a paid one off: an"
            " external one that is not simulated."
        ),
    ]
    enabled: Annotated[bool, says("Whether it may be used at all.")]
    endpoint: Annotated[
        str | None,
        says(
            "Base URL, of an `openai` one with its `/v1` (`…/chat/completions` is asked), of an `anthropic` one with or"
            " without; null is the vendor's own. A private one that is not simulated needs it."
        ),
    ] = None
    secret: Annotated[
        SecretName | None,
        says("Where its credential is, as `env:NAME`; off while that is unset, and if it is paid and names none."),
    ] = None
    in_flight_max: Annotated[
        Positive | None, says("How many calls may run at once, which is private capacity; null is no limit.")
    ] = None
    fleet: Annotated[Fleet | None, says("The replicas of a fleet, which alone has them.")] = None
    script: Annotated[Script | None, says("What a simulated one does; null answers plainly.")] = None
    dialect: Annotated[
        Dialect,
        says("How the endpoint departs from its vendor's API of today: `self_hosted` for vLLM, SGLang, llama.cpp."),
    ] = Dialect.CURRENT

    @property
    def endpoints(self) -> tuple[tuple[str, str], ...]:
        """Every address that its calls may go to, behind the field that names it."""
        own = () if self.endpoint is None else (("endpoint", self.endpoint),)
        replicas = () if self.fleet is None else self.fleet.replicas
        return own + tuple((f"fleet.replicas[{replica.id}].endpoint", replica.endpoint) for replica in replicas)

    @property
    def hinted_as(self) -> tuple[str, str]:
        """The tenant and the model under which a hint service knows a fleet's engines. A fleet's only."""
        assert self.fleet is not None
        return self.fleet.hint_tenant, self.fleet.hint_model or self.model

    @property
    def paid(self) -> bool:
        """Whether somebody outside sends a bill: such a capability needs known prices to be used at all."""
        return self.boundary is Boundary.EXTERNAL and self.provider is not ProviderKind.SIMULATED
