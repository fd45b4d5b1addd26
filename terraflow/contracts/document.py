"""The document that is signed: everything the plane enforces, as written.

1. Field names are those of the bundle; unknown fields are refused.
2. Workload ids are unique in a tenant; capability ids are unique in the bundle; the two sets are disjoint, as are
   contract aliases and both.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from terraflow.contracts.capability import Capability
from terraflow.contracts.contract import Contract
from terraflow.contracts.words import ClassTrigger, DataClassLabel, Id, Moment, Positive, TenantName, Usd, says
from terraflow.core.budget import Level, Window

PAYLOAD_TYPE = "application/vnd.terraflow.bundle+json"
"""The DSSE payload type of a bundle."""


class TenantEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An isolation boundary and the business units in it."""

    id: Annotated[TenantName, says("Its name; nothing of one tenant is visible to another.")]
    business_units: Annotated[tuple[Id, ...], says("Its owners of cost.")]


class ApplicationEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An application's entitlements. Its keys are in the store, by hash."""

    id: Annotated[Id, says("Its name, unique in the tenant.")]
    tenant: Annotated[TenantName, says("Its tenant.")]
    workloads: Annotated[tuple[Id, ...], says("The tenant's workloads that it may call.")]
    default_workload: Annotated[Id, says("The one of them that a request gets when it names none.")]


class WorkloadEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A purpose for which models are used, and the contract that governs it."""

    id: Annotated[Id, says("Its name, unique in the tenant; no capability or alias has it.")]
    tenant: Annotated[TenantName, says("Its tenant.")]
    business_unit: Annotated[Id, says("The tenant's business unit that bears its cost.")]
    priority: Annotated[Literal[0, 1, 2, 3], says("0 is served first, 3 last.")]
    contract: Annotated[Id, says("The contract that governs it.")]


class BudgetEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A limit in decimal US dollars on one level and window."""

    tenant: Annotated[TenantName, says("Its tenant.")]
    level: Annotated[Level, says("Whose budget it is.")]
    of: Annotated[str, says("The id of the workload, business unit or tenant.")]
    window: Annotated[Window, says("The period it covers, in UTC.")]
    limit_usd: Annotated[Usd, says("The most that may be reserved and spent in one period, in dollars.")]


class BundleDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is signed: the payload of the DSSE envelope, canonical JSON."""

    schema: Annotated[Literal[1], says("The version of this format.")]
    sequence: Annotated[Positive, says("Above the active bundle's, or activation refuses it.")]
    issued: Annotated[Moment, says("When it was made.")]
    expires: Annotated[Moment, says("When the plane stops running on it.")]
    tenants: Annotated[tuple[TenantEntry, ...], says("Isolation boundaries.")]
    applications: Annotated[tuple[ApplicationEntry, ...], says("Programs and what they may call.")]
    workloads: Annotated[tuple[WorkloadEntry, ...], says("Purposes, each under a contract.")]
    contracts: Annotated[tuple[Contract, ...], says("The rules.")]
    capabilities: Annotated[tuple[Capability, ...], says("The models.")]
    budgets: Annotated[tuple[BudgetEntry, ...], says("Limits of cost; what has none is only counted.")] = ()
    class_defaults: Annotated[
        dict[ClassTrigger, DataClassLabel],
        says(
            "The class that a found type gives a request, and that of one with nothing found and nothing declared."
            " Absent ones are: undeclared internal, pii confidential, pci, phi and credentials restricted."
        ),
    ] = {}
