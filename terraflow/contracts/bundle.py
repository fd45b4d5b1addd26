"""The bundle: the signed snapshot of everything the plane enforces.

1. A `Bundle` is built only by `terraflow.contracts.verify`, from an envelope whose signature held and whose
   references all resolve; there is no other way to have one.
2. It is immutable, and indexed once when built, so that a request's lookups are dictionary reads.
3. Workload ids are unique in a tenant; capability ids are unique in the bundle; the two sets are disjoint, as are
   contract aliases and workload names.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from terraflow.contracts.capability import Capability
from terraflow.contracts.contract import Contract
from terraflow.core.budget import Level as Level
from terraflow.core.budget import Window as Window


class TenantEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An isolation boundary and the business units in it."""

    id: str
    business_units: tuple[str, ...]


class ApplicationEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An application's entitlements. Its keys are in the store, by hash."""

    id: str
    tenant: str
    workloads: tuple[str, ...]
    default_workload: str


class WorkloadEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A purpose for which models are used, and the contract that governs it."""

    id: str
    tenant: str
    business_unit: str
    priority: int
    contract: str


class BudgetEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A limit in decimal US dollars on one level and window."""

    tenant: str
    level: Level
    of: str
    window: Window
    limit_usd: str


class BundleDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is signed: the payload of the DSSE envelope, canonical JSON."""

    schema: int
    sequence: int
    issued: datetime
    expires: datetime
    tenants: tuple[TenantEntry, ...]
    applications: tuple[ApplicationEntry, ...]
    workloads: tuple[WorkloadEntry, ...]
    contracts: tuple[Contract, ...]
    capabilities: tuple[Capability, ...]
    budgets: tuple[BudgetEntry, ...] = ()
    class_defaults: dict[str, str] = {}
