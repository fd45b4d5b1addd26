"""The class that follows from what was declared, found and attached: the whole table, and that it only ever rises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.classify.findings import ClassDefaults, class_of
from terraflow.contracts.workload import CLASS_DEFAULTS
from terraflow.core.types import DataClass, SensitiveType

PII, PCI, PHI, CREDENTIALS = SensitiveType
PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED = DataClass
NONE: frozenset[SensitiveType] = frozenset()
DEFAULTS = ClassDefaults(
    nothing=CLASS_DEFAULTS["undeclared"],
    attachment=RESTRICTED,
    by_type={kind: CLASS_DEFAULTS[kind] for kind in SensitiveType},
)

TABLE = [
    # found, declared, attachments, class
    (NONE, None, False, INTERNAL),
    (NONE, PUBLIC, False, PUBLIC),
    (NONE, RESTRICTED, False, RESTRICTED),
    (NONE, None, True, RESTRICTED),
    (NONE, PUBLIC, True, RESTRICTED),
    ({PII}, None, False, CONFIDENTIAL),
    ({PII}, PUBLIC, False, CONFIDENTIAL),
    ({PII}, RESTRICTED, False, RESTRICTED),
    ({PCI}, None, False, RESTRICTED),
    ({PHI}, None, False, RESTRICTED),
    ({CREDENTIALS}, PUBLIC, False, RESTRICTED),
    ({PII, PCI}, INTERNAL, False, RESTRICTED),
]


@pytest.mark.parametrize(("found", "declared", "attachments", "expected"), TABLE)
def test_the_class_by_the_table(found, declared, attachments: bool, expected: DataClass) -> None:
    decided = class_of(frozenset(found), declared=declared, attachments=attachments, defaults=DEFAULTS)
    assert decided == (expected, frozenset(found))


def test_a_declared_type_counts_like_a_found_one() -> None:
    decided = class_of(NONE, declared=PUBLIC, declared_types=frozenset({PHI}), defaults=DEFAULTS)
    assert decided == (RESTRICTED, {PHI})


TYPES = st.frozensets(st.sampled_from(SensitiveType))
CLASSES = st.sampled_from(DataClass)


@given(TYPES, TYPES, st.none() | CLASSES, st.booleans(), st.dictionaries(st.sampled_from(SensitiveType), CLASSES))
def test_more_found_or_a_stricter_contract_never_lowers_the_class(found, more, declared, attached, contract) -> None:
    plain = class_of(found, declared=declared, attachments=attached, defaults=DEFAULTS).data_class
    if found or attached or declared is not None:
        assert class_of(found | more, declared=declared, attachments=attached, defaults=DEFAULTS).data_class >= plain
    assert class_of(found, declared=declared, attachments=True, defaults=DEFAULTS).data_class == RESTRICTED
    floors = {kind: max(by_table, contract.get(kind, by_table)) for kind, by_table in DEFAULTS.by_type.items()}
    raised = DEFAULTS._replace(by_type=floors)
    assert class_of(found, declared=declared, attachments=attached, defaults=raised).data_class >= plain
