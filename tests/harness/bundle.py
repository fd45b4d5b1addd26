"""Bundle documents from Python: everything has a default, and a test says only what its case is about.

1. A priced token costs one micro-dollar of input and two of output, so that costs can be read off token counts.
2. A purpose is a workload with a contract of its own and the capabilities that it allows.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

Json = dict[str, Any]

TENANT = "acme"
UNIT = "main"
APPLICATION = "web"
PRICES = {"input": 1_000_000, "output": 2_000_000}
EVERY_TYPE = ["pii", "pci", "phi", "credentials"]
CLASSES = ["public", "internal", "confidential", "restricted"]


class Purpose(NamedTuple):
    """A workload, its contract, and the capabilities that it allows."""

    workload: Json
    contract: Json
    capabilities: tuple[Json, ...]


def moment(seconds: float = 0) -> str:
    """So many seconds from now, in RFC 3339."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sim(name: str, *acts: Json, **changes: Any) -> Json:
    """A private simulated capability that may receive everything; `acts` are its script."""
    entry: Json = {
        "id": name,
        "provider": "simulated",
        "model": f"{name}-model",
        "family": "sim",
        "tier": "standard",
        "boundary": "private",
        "jurisdiction": "eu",
        "terms": {"trains": False, "retention_days": 0},
        "data_class_max": "restricted",
        "sensitive_types": EVERY_TYPE,
        "consequence_tiers": ["low"],
        "lifecycle": "approved",
        "context_window_tokens": 1_000_000,
        "output_tokens_max": 4_096,
        "tools": True,
        "prefix_cache": "none",
        "prices": PRICES,
        "enabled": True,
    }
    if acts:
        entry["script"] = {"acts": list(acts)}
    return entry | changes


def remote(name: str, port: int, **changes: Any) -> Json:
    """An OpenAI-compatible engine on this machine."""
    entry = sim(name, provider="openai", dialect="self_hosted", endpoint=f"http://127.0.0.1:{port}/v1")
    return entry | changes


def purpose(
    name: str, *capabilities: Json, tenant: str = TENANT, unit: str = UNIT, priority: int = 1, **terms: Any
) -> Purpose:
    """A workload that may use `capabilities`; `terms` are fields of its contract."""
    tiers = list(dict.fromkeys(entry["tier"] for entry in capabilities)) or ["standard"]
    contract: Json = {
        "id": f"{tenant}.{name}",
        "version": 1,
        "tenant": tenant,
        "state": "approved",
        "author": "asha",
        "approver": "ravi",
        "effective_from": "2026-01-01T00:00:00Z",
        "expires_at": "2099-01-01T00:00:00Z",
        "capabilities": [entry["id"] for entry in capabilities],
        "families": ["*"],
        "jurisdictions": ["*"],
        "consequence_tier": "low",
        "egress": "allowed",
        "training_allowed": False,
        "retention_days_max": 0,
        "data_classes": CLASSES,
        "sensitive_types": EVERY_TYPE,
        "tiers": tiers,
        "default_tier": tiers[0],
        "output_tokens_default": 100,
    }
    workload = {"id": name, "tenant": tenant, "business_unit": unit, "priority": priority, "contract": contract["id"]}
    return Purpose(workload, contract | terms, capabilities)


def limit(level: str, of: str, window: str, usd: str, tenant: str = TENANT) -> Json:
    """A budget."""
    return {"tenant": tenant, "level": level, "of": of, "window": window, "limit_usd": usd}


def document(*purposes: Purpose, withheld: tuple[str, ...] = (), **changes: Any) -> Json:
    """The bundle of some purposes. In each tenant the application `web` may call every workload but those withheld;
    the first is its default."""
    tenants: dict[str, dict[str, None]] = {}
    entitled: dict[str, list[str]] = {}
    for made in purposes:
        tenants.setdefault(made.workload["tenant"], {})[made.workload["business_unit"]] = None
        tenants.setdefault(made.contract["tenant"], {UNIT: None})
        if made.workload["id"] not in withheld:
            entitled.setdefault(made.workload["tenant"], []).append(made.workload["id"])
    capabilities = {entry["id"]: entry for made in purposes for entry in made.capabilities}
    entry: Json = {
        "schema": 1,
        "sequence": 1,
        "issued": moment(-3600),
        "expires": moment(86_400),
        "tenants": [{"id": name, "business_units": list(units)} for name, units in tenants.items()],
        "applications": [
            {"id": APPLICATION, "tenant": tenant, "workloads": names, "default_workload": names[0]}
            for tenant, names in entitled.items()
        ],
        "workloads": [made.workload for made in purposes],
        "contracts": [made.contract for made in purposes],
        "capabilities": list(capabilities.values()),
    }
    return entry | changes
