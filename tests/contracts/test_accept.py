"""What a contract accepts before any route: tools, data class, sensitive types."""

from __future__ import annotations

import itertools

import pytest

from terraflow.contracts.accept import Accepted, accept_class, accept_tools
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, SensitiveType
from tests.contracts.samples import workload

PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED = DataClass
NONE: frozenset[SensitiveType] = frozenset()


def types(*names: str) -> frozenset[SensitiveType]:
    return frozenset(SensitiveType(name) for name in names)


@pytest.mark.parametrize(
    ("declared", "found", "scanned", "expected"),
    [
        (None, NONE, None, INTERNAL),
        (PUBLIC, NONE, None, PUBLIC),
        (RESTRICTED, NONE, None, RESTRICTED),
        (None, types("pii"), None, CONFIDENTIAL),
        (PUBLIC, types("pii"), None, CONFIDENTIAL),
        (PUBLIC, types("pii", "pci"), None, RESTRICTED),
        (None, types("phi"), None, RESTRICTED),
        (PUBLIC, types("credentials"), None, RESTRICTED),
        (RESTRICTED, types("pii"), None, RESTRICTED),
        (PUBLIC, NONE, RESTRICTED, RESTRICTED),
        (None, NONE, PUBLIC, INTERNAL),
    ],
)
def test_the_most_sensitive_counts(
    declared: DataClass | None, found: frozenset[SensitiveType], scanned: DataClass | None, expected: DataClass
) -> None:
    assert accept_class(workload(), declared, found, scanned) == Accepted(expected, found)


def test_a_contract_refuses_what_it_does_not_accept() -> None:
    under = workload(data_classes=["internal", "confidential"], sensitive_types=["pii"])
    assert accept_class(under, PUBLIC, NONE) == Accepted(PUBLIC, NONE)
    assert accept_class(under, RESTRICTED, NONE) == Refuse(
        reason=Governed.DATA_CLASS_NOT_PERMITTED, detail="restricted"
    )
    loose = workload(sensitive_types=["pii"])
    assert accept_class(loose, None, types("pci")) == Refuse(
        reason=Governed.DATA_CLASS_NOT_PERMITTED, detail="sensitive_type"
    )
    assert isinstance(accept_class(workload(data_classes=[]), PUBLIC, NONE), Refuse)


def test_an_undeclared_class_is_refused_where_it_is_required() -> None:
    under = workload(require_class=True)
    assert accept_class(under, None, NONE) == Refuse(reason=Governed.DATA_CLASS_UNDECLARED)
    assert accept_class(under, PUBLIC, NONE) == Accepted(PUBLIC, NONE)


def test_more_sensitive_facts_never_turn_a_refusal_into_an_acceptance() -> None:
    under = workload(data_classes=["confidential"], sensitive_types=["pii", "phi"], class_floor={"pii": "restricted"})
    subsets = [frozenset(part) for size in range(3) for part in itertools.combinations(SensitiveType, size)]
    for declared, found, scanned in itertools.product((None, *DataClass), subsets, (None, *DataClass)):
        result = accept_class(under, declared, found, scanned)
        for more in subsets:
            stricter = accept_class(under, declared, found | more, scanned)
            if isinstance(stricter, Accepted):
                assert isinstance(result, Accepted)
                assert stricter.data_class >= result.data_class


def test_every_offered_tool_must_be_listed() -> None:
    under = workload(tools=["search", "lookup"])
    assert accept_tools(under, ("search",)) is None
    assert accept_tools(under, ()) is None
    assert accept_tools(under, ("search", "shell")) == Refuse(reason=Governed.TOOL_NOT_PERMITTED)
    assert accept_tools(workload(), ("search",)) == Refuse(reason=Governed.TOOL_NOT_PERMITTED)
