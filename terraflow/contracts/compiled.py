"""Contract and capability as the exclusion table reads them: labels as values, lists as sets, money as integers.

1. They are built from a checked document only, once, when the bundle is verified.
2. They are `Exact`: one that lacks a field, or holds a value of another type, cannot be built.
"""

from __future__ import annotations

from terraflow.contracts.capability import Boundary, Capability, Lifecycle, PrefixCache
from terraflow.contracts.contract import Contract, Egress
from terraflow.contracts.exact import Exact
from terraflow.core.prices import prices_audio
from terraflow.core.types import DATA_CLASSES, DataClass, SensitiveType, parse_usd

ANY = "*"


class CompiledCapability(Exact, frozen=True, kw_only=True):
    """What the table reads of a capability. `definition` is the whole of it, for everyone else."""

    id: str
    family: str
    tier: str
    boundary: Boundary
    jurisdiction: str
    trains: bool
    retention_days: int
    data_class_max: DataClass
    sensitive_types: frozenset[SensitiveType]
    consequence_tiers: frozenset[str]
    lifecycle: Lifecycle
    context_window_tokens: int
    output_tokens_max: int
    tools: bool
    prefix_cache: PrefixCache
    enabled: bool
    paid: bool
    priced: bool
    audio_priced: bool
    secret_named: bool
    definition: Capability


class CompiledContract(Exact, frozen=True, kw_only=True):
    """What the table reads of a contract. `definition` is the whole of it, for everyone else."""

    capabilities: frozenset[str]
    families: frozenset[str]
    jurisdictions: frozenset[str]
    consequence_tier: str
    egress: Egress
    training_allowed: bool
    retention_days_max: int
    request_limit_micro_usd: int | None
    definition: Contract


def compile_capability(capability: Capability) -> CompiledCapability:
    """The compiled form of a capability of a checked document."""
    return CompiledCapability(
        id=capability.id,
        family=capability.family,
        tier=capability.tier,
        boundary=capability.boundary,
        jurisdiction=capability.jurisdiction,
        trains=capability.terms.trains,
        retention_days=capability.terms.retention_days,
        data_class_max=DATA_CLASSES[capability.data_class_max],
        sensitive_types=frozenset(capability.sensitive_types),
        consequence_tiers=frozenset(capability.consequence_tiers),
        lifecycle=capability.lifecycle,
        context_window_tokens=capability.context_window_tokens,
        output_tokens_max=capability.output_tokens_max,
        tools=capability.tools,
        prefix_cache=capability.prefix_cache,
        enabled=capability.enabled,
        paid=capability.paid,
        priced=capability.prices is not None,
        audio_priced=prices_audio(capability.prices),
        secret_named=capability.secret is not None,
        definition=capability,
    )


def compile_contract(contract: Contract) -> CompiledContract:
    """The compiled form of a contract of a checked document."""
    limit = contract.request_limit_usd
    return CompiledContract(
        capabilities=frozenset(contract.capabilities),
        families=frozenset(contract.families),
        jurisdictions=frozenset(contract.jurisdictions),
        consequence_tier=contract.consequence_tier,
        egress=contract.egress,
        training_allowed=contract.training_allowed,
        retention_days_max=contract.retention_days_max,
        request_limit_micro_usd=None if limit is None else parse_usd(limit),
        definition=contract,
    )
