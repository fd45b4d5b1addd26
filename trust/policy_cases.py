"""Generated policy cases: a contract, some capabilities, a request, and the state of each capability.

1. A case is plain values (what a bundle and a request would say), so that two engines can be built from it that
   share nothing.
2. Most values permit most of the time: cases in which something is permitted, and in which exactly one thing
   stands in the way, are the common ones.
3. A seed gives the same cases everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from terraflow.contracts.capability import Capability
from terraflow.contracts.compiled import compile_capability, compile_contract
from terraflow.contracts.contract import Contract
from terraflow.contracts.routes import Condition, RequestFacts, Survey, Verdict, evaluate, survey
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES

CLASSES = ("public", "internal", "confidential", "restricted")
TYPES = ("pii", "pci", "phi", "credentials")
CONSEQUENCES = ("low", "moderate", "high", "critical")
FAMILIES = ("fir", "oak", "elm")
JURISDICTIONS = ("in", "eu", "us")
PRICES = (None, {"input": 1, "output": 1}, {"input": 1, "output": 1, "audio_input": 9})


class Case(msgspec.Struct):
    """`states` and `capabilities` are in the same order."""

    contract: dict[str, Any]
    capabilities: list[dict[str, Any]]
    request: dict[str, Any]
    states: list[dict[str, Any]]


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` cases, the same for the same seed."""
    rng = Random(seed)
    for _ in range(count):
        capabilities = [_capability(rng, f"m{at}") for at in range(rng.randint(1, 4))]
        yield Case(
            contract=_contract(rng, [entry["id"] for entry in capabilities]),
            capabilities=capabilities,
            request=_request(rng),
            states=[_state(rng) for _ in capabilities],
        )


def likely(rng: Random, usual: Any, *others: Any, chance: float = 0.06) -> Any:
    """`usual`, or with a small chance one of the others."""
    return rng.choice(others) if rng.random() < chance else usual


def _some(rng: Random, values: tuple[str, ...], chance: float) -> list[str]:
    return [value for value in values if rng.random() < chance]


def _capability(rng: Random, name: str) -> dict[str, Any]:
    provider, boundary = rng.choice(
        [("simulated", "private"), ("openai", "private"), ("simulated", "external"), ("anthropic", "external")]
    )
    window = likely(rng, 8_000, 1_500, 700, 300, chance=0.25)
    return {
        "id": name,
        "provider": provider,
        "model": "some-model",
        "family": rng.choice(FAMILIES),
        "tier": "standard",
        "boundary": boundary,
        "jurisdiction": rng.choice(JURISDICTIONS),
        "terms": {"trains": rng.random() < 0.1, "retention_days": likely(rng, 0, 29, 30, 31, chance=0.3)},
        "data_class_max": rng.choice(("internal", "confidential", "restricted", "restricted", "restricted")),
        "sensitive_types": _some(rng, TYPES, 0.9),
        "consequence_tiers": _some(rng, CONSEQUENCES, 0.9),
        "lifecycle": likely(rng, "approved", "candidate", "deprecated", "retired"),
        "context_window_tokens": window,
        "output_tokens_max": min(window, likely(rng, 400, 100, chance=0.3)),
        "tools": rng.random() < 0.85,
        "prefix_cache": rng.choice(("none", "none", "dedicated", "dedicated", "shared")),
        "prices": likely(rng, {"input": 1, "output": 1, "audio_input": 9, "audio_output": 9}, *PRICES, chance=0.16),
        "enabled": rng.random() < 0.95,
        "secret": None if provider == "simulated" else likely(rng, "env:KEY", None, chance=0.1),
    }


def _contract(rng: Random, names: list[str]) -> dict[str, Any]:
    return {
        "id": "terms",
        "version": 1,
        "tenant": "acme",
        "state": "approved",
        "author": "asha",
        "approver": "ravi",
        "effective_from": "2026-01-01T00:00:00Z",
        "expires_at": "2027-01-01T00:00:00Z",
        "capabilities": [name for name in names if rng.random() < 0.93],
        "families": likely(rng, ["*"], _some(rng, FAMILIES, 0.7), chance=0.5),
        "jurisdictions": likely(rng, ["*"], _some(rng, JURISDICTIONS, 0.7), chance=0.5),
        "consequence_tier": rng.choice(CONSEQUENCES),
        "egress": rng.choice(("never", "burst", "burst", "allowed", "allowed")),
        "training_allowed": rng.random() < 0.2,
        "retention_days_max": likely(rng, 30, 0, chance=0.2),
        "data_classes": list(CLASSES),
        "sensitive_types": list(TYPES),
        "tiers": ["standard"],
        "default_tier": "standard",
    }


def _request(rng: Random) -> dict[str, Any]:
    return {
        "data_class": rng.choice(("public", "internal", "internal", "confidential", "restricted")),
        "sensitive_types": _some(rng, TYPES, 0.12),
        "tools_offered": rng.random() < 0.3,
        "input_bytes": rng.choice((30, 300, 300, 300, 900, 1_100, 2_700, 7_600, 7_601)),
        "output_tokens_max": rng.choice((50, 200, 400, 1_000)),
        "audio": rng.random() < 0.2,
    }


def _state(rng: Random) -> dict[str, Any]:
    return {
        "enabled": rng.random() < 0.95,
        "secret_present": rng.random() < 0.93,
        "healthy": rng.random() < 0.85,
        "inside_boundary": rng.random() < 0.95,
        "has_free_slot": rng.random() < 0.7,
        "under_pressure": rng.random() < 0.15,
    }


def surveyed(case: Case) -> Survey:
    """The case's contract and capabilities as the plane compiles them."""
    return survey(
        compile_contract(msgspec.convert(case.contract, Contract)),
        tuple(compile_capability(msgspec.convert(entry, Capability)) for entry in case.capabilities),
    )


def facts_of(request: dict[str, Any]) -> RequestFacts:
    """The request as the table reads it."""
    return RequestFacts(
        data_class=DATA_CLASSES[request["data_class"]],
        sensitive_types=frozenset(SENSITIVE_TYPES[name] for name in request["sensitive_types"]),
        tools_offered=request["tools_offered"],
        input_bytes=request["input_bytes"],
        output_tokens_max=request["output_tokens_max"],
        audio=request["audio"],
    )


def conditions_of(case: Case) -> dict[str, Condition]:
    """The capabilities' states as the table reads them."""
    return {entry["id"]: Condition(**state) for entry, state in zip(case.capabilities, case.states, strict=True)}


def verdicts(case: Case) -> tuple[Verdict, ...]:
    """What the plane's own table says."""
    return evaluate(surveyed(case), facts_of(case.request), conditions_of(case))
