"""A small bundle that passes every check, and ways to change one thing of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.document import PAYLOAD_TYPE
from terraflow.contracts.verify import verify_bundle
from terraflow.contracts.workload import Workload, instant
from terraflow.core.canonical import canonical_json
from terraflow.core.signature import keyring, sign_envelope

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
KEYS = keyring([KEY.public_key()])
NOW = instant(datetime(2026, 6, 1, tzinfo=UTC))


def capability(name: str, **changes: Any) -> dict[str, Any]:
    """A private simulated capability that may receive everything."""
    entry: dict[str, Any] = {
        "id": name,
        "provider": "simulated",
        "model": f"{name}-model",
        "family": "sim",
        "tier": "standard",
        "boundary": "private",
        "jurisdiction": "in",
        "terms": {"trains": False, "retention_days": 0},
        "data_class_max": "restricted",
        "sensitive_types": ["pii", "pci", "phi", "credentials"],
        "consequence_tiers": ["low", "moderate", "high", "critical"],
        "lifecycle": "approved",
        "context_window_tokens": 100_000,
        "output_tokens_max": 4_096,
        "tools": True,
        "prefix_cache": "none",
        "prices": {"input": 150_000, "output": 600_000},
        "enabled": True,
    }
    return entry | changes


def external(name: str, **changes: Any) -> dict[str, Any]:
    """A paid capability outside the boundary."""
    outside = {"provider": "openai", "boundary": "external", "secret": "env:SAMPLE_KEY"}
    return capability(name, **(outside | changes))


def contract(name: str = "starter", **changes: Any) -> dict[str, Any]:
    """An approved contract that allows the sample's capabilities."""
    entry: dict[str, Any] = {
        "id": name,
        "version": 1,
        "tenant": "acme",
        "state": "approved",
        "author": "asha",
        "approver": "ravi",
        "effective_from": "2026-01-01T00:00:00Z",
        "expires_at": "2027-01-01T00:00:00Z",
        "capabilities": ["alpha", "beta", "gamma"],
        "families": ["*"],
        "jurisdictions": ["*"],
        "consequence_tier": "moderate",
        "egress": "allowed",
        "training_allowed": False,
        "retention_days_max": 30,
        "data_classes": ["public", "internal", "confidential", "restricted"],
        "sensitive_types": ["pii", "pci", "phi", "credentials"],
        "tiers": ["basic", "standard", "premium"],
        "default_tier": "standard",
    }
    return entry | changes


def document(**changes: Any) -> dict[str, Any]:
    """A bundle's document as plain JSON."""
    entry: dict[str, Any] = {
        "schema": 1,
        "sequence": 7,
        "issued": "2026-05-01T00:00:00Z",
        "expires": "2026-12-01T00:00:00Z",
        "tenants": [
            {"id": "acme", "business_units": ["research", "sales"]},
            {"id": "umbra", "business_units": ["main"]},
        ],
        "applications": [{"id": "web", "tenant": "acme", "workloads": ["assistant"], "default_workload": "assistant"}],
        "workloads": [
            {"id": "assistant", "tenant": "acme", "business_unit": "sales", "priority": 1, "contract": "starter"}
        ],
        "contracts": [contract()],
        "capabilities": [capability("alpha"), capability("beta"), external("gamma")],
        "budgets": [],
        "class_defaults": {},
    }
    return entry | changes


def signed(value: dict[str, Any], key: Ed25519PrivateKey = KEY) -> bytes:
    """The envelope of any value, sound or not."""
    return sign_envelope(canonical_json(value), PAYLOAD_TYPE, key)


def bundle(**changes: Any) -> Bundle:
    """The verified bundle of `document`."""
    return verify_bundle(signed(document(**changes)), KEYS, NOW)


def workload(capabilities: list[dict[str, Any]] | None = None, **terms: Any) -> Workload:
    """The sample's workload, over other capabilities and with other terms of its contract."""
    listed = document()["capabilities"] if capabilities is None else capabilities
    terms.setdefault("capabilities", [entry["id"] for entry in listed])
    terms.setdefault("tiers", sorted({"standard", *(entry["tier"] for entry in listed)}))
    made = bundle(contracts=[contract(**terms)], capabilities=listed)
    return made.workloads["acme", "assistant"]
