"""A workload as requests meet it: its contract with everything worked out once, when the bundle is verified."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec

from terraflow.contracts.compiled import CompiledCapability, compile_contract
from terraflow.contracts.contract import Contract
from terraflow.contracts.document import BudgetEntry, BundleDocument, WorkloadEntry
from terraflow.contracts.routes import Survey, survey
from terraflow.contracts.schemas import Validator, compile_schema
from terraflow.core.budget import Level, Window
from terraflow.core.types import DATA_CLASSES, DataClass, Instant, Priority, SensitiveType, parse_usd

CLASS_DEFAULTS: Mapping[str, DataClass] = MappingProxyType(
    {
        "undeclared": DataClass.INTERNAL,
        "pii": DataClass.CONFIDENTIAL,
        "pci": DataClass.RESTRICTED,
        "phi": DataClass.RESTRICTED,
        "credentials": DataClass.RESTRICTED,
    }
)
"""The class each thing gives a request, unless the bundle's table says otherwise."""


class BudgetRule(msgspec.Struct, frozen=True):
    """One counter of a workload's cost; `limit_micro_usd` None counts without limiting."""

    level: Level
    of: str
    window: Window
    limit_micro_usd: int | None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps read.

    `contract` is the document's; `survey` its compiled form under which every capability of the bundle was looked
    at. `budgets` are the three levels by the two windows. `class_of` has a class for each trigger, the contract's
    floor counted in; `data_class_max` and `sensitive_types` are what the contract accepts. `answer_schema` is None
    when answers need not satisfy one.
    """

    id: str
    tenant: str
    business_unit: str
    priority: Priority
    contract: Contract
    effective_from: Instant
    expires_at: Instant
    survey: Survey
    tools: frozenset[str]
    data_class_max: DataClass | None
    sensitive_types: frozenset[SensitiveType]
    class_of: Mapping[str, DataClass]
    tier_rank: Mapping[str, int]
    budgets: tuple[BudgetRule, ...]
    answer_schema: Validator | None


def build_workload(
    entry: WorkloadEntry,
    contract: Contract,
    document: BundleDocument,
    capabilities: tuple[CompiledCapability, ...],
) -> Workload:
    """The workload of a checked document. Raises PolicyEvaluationError if the table cannot be asked."""
    defaults = dict(CLASS_DEFAULTS)
    defaults.update({key: DATA_CLASSES[label] for key, label in document.class_defaults.items()})
    floors = {str(key): DATA_CLASSES[label] for key, label in contract.class_floor.items()}
    schema = contract.output.json_schema
    return Workload(
        id=entry.id,
        tenant=entry.tenant,
        business_unit=entry.business_unit,
        priority=Priority(entry.priority),
        contract=contract,
        effective_from=instant(contract.effective_from),
        expires_at=instant(contract.expires_at),
        survey=survey(compile_contract(contract), capabilities),
        tools=frozenset(contract.tools),
        data_class_max=max((DATA_CLASSES[label] for label in contract.data_classes), default=None),
        sensitive_types=frozenset(contract.sensitive_types),
        class_of=MappingProxyType({key: max(was, floors.get(key, was)) for key, was in defaults.items()}),
        tier_rank=MappingProxyType({tier: rank for rank, tier in enumerate(contract.tiers)}),
        budgets=_budgets(entry, document.budgets),
        answer_schema=None if schema is None else compile_schema(schema),
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(moment: datetime) -> Instant:
    """The instant of a moment with a zone, exact."""
    return Instant((moment - _EPOCH) // timedelta(microseconds=1))


def _budgets(entry: WorkloadEntry, budgets: tuple[BudgetEntry, ...]) -> tuple[BudgetRule, ...]:
    limits = {
        (budget.level, budget.of, budget.window): parse_usd(budget.limit_usd)
        for budget in budgets
        if budget.tenant == entry.tenant
    }
    owners = (
        (Level.WORKLOAD, entry.id),
        (Level.BUSINESS_UNIT, entry.business_unit),
        (Level.TENANT, entry.tenant),
    )
    return tuple(
        BudgetRule(level, of, window, limits.get((level, of, window))) for level, of in owners for window in Window
    )
