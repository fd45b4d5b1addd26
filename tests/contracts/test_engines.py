"""The table against another engine and against itself made stricter, in short; `trust` has the long forms.

Each comparison is shown to bite: with a fault planted in the table it must find a difference.
"""

from __future__ import annotations

import pytest

from terraflow.contracts import routes
from terraflow.contracts.routes import EXCLUSIONS, Exclusion, Verdict, evaluate, survey
from terraflow.core.reasons import Governed
from trust import policy_cedar, policy_pairs
from trust.policy_cases import Case, cases, conditions_of, facts_of, surveyed, verdicts

CASES = list(cases(seed=11, count=2_000))

Decisions = list[list[str]]


@pytest.fixture(scope="module")
def cedars() -> Decisions:
    return list(policy_cedar.by_cedar(CASES))


def ours(table: tuple[Exclusion, ...], case: Case) -> tuple[Verdict, ...]:
    under = surveyed(case)
    compiled = tuple(route.capability for route in under.routes)
    return evaluate(survey(under.contract, compiled, table), facts_of(case.request), conditions_of(case))


def codes(found: tuple[Verdict, ...]) -> list[str]:
    return [verdict.exclusion.value if verdict.exclusion else "" for verdict in found]


def test_cedar_agrees_on_every_capability_and_every_exclusion_is_met(cedars: Decisions) -> None:
    assert [codes(verdicts(case)) for case in CASES] == cedars
    met = {code for decided in cedars for code in decided}
    assert met == {"", *(row.code.value for row in EXCLUSIONS)}
    assert tuple(dict.fromkeys(row.code.value for row in EXCLUSIONS)) == policy_cedar.ORDER


@pytest.mark.parametrize("at", range(len(EXCLUSIONS)))
def test_cedar_finds_a_row_that_is_missing(at: int, cedars: Decisions) -> None:
    table = EXCLUSIONS[:at] + EXCLUSIONS[at + 1 :]
    assert any(codes(ours(table, case)) != decided for case, decided in zip(CASES, cedars, strict=True))


@pytest.mark.parametrize(
    "at", [at for at in range(len(EXCLUSIONS) - 1) if EXCLUSIONS[at].code is not EXCLUSIONS[at + 1].code]
)
def test_cedar_finds_two_rows_that_changed_places(at: int, cedars: Decisions) -> None:
    table = (*EXCLUSIONS[:at], EXCLUSIONS[at + 1], EXCLUSIONS[at], *EXCLUSIONS[at + 2 :])
    differs = any(codes(ours(table, case)) != decided for case, decided in zip(CASES, cedars, strict=True))
    # The two rows about leaving the boundary concern disjoint capabilities: their order cannot be seen.
    disjoint = {row.code for row in EXCLUSIONS[at : at + 2]} == {
        Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY,
        Governed.EXTERNAL_EGRESS_NOT_ALLOWED,
    }
    assert differs is not disjoint


@pytest.mark.parametrize(
    "wrong",
    [
        lambda inside, conditions: True,
        lambda inside, conditions: False,
        lambda inside, conditions: not any(v.permitted and conditions[v.capability].has_free_slot for v in inside),
        lambda inside, conditions: bool(inside) and not any(v.permitted for v in inside),
        lambda inside, conditions: any(v.awaits_health for v in inside),
    ],
    ids=["always", "never", "vacuously", "slots ignored", "health only"],
)
def test_cedar_finds_another_idea_of_exhausted_capacity(
    wrong: object, cedars: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "private_capacity_exhausted", wrong)
    assert any(codes(verdicts(case)) != decided for case, decided in zip(CASES, cedars, strict=True))


def test_nothing_stricter_permits_more() -> None:
    tally = policy_pairs.compare(seed=5, pairs=1_000)
    assert tally.grew == []
    assert tally.tried.total() == 1_000
    assert tally.shrank.total() > 50


@pytest.mark.parametrize(
    ("code", "turned"),
    [
        (Governed.DATA_CLASS_EXCEEDS_CAPABILITY, lambda m, r: r.data_class >= m.data_class_max),
        (Governed.SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY, lambda m, r: bool(m.sensitive_types & r.sensitive_types)),
        (Governed.CAPABILITY_NOT_IN_CONTRACT, lambda c, m: len(c.capabilities) < 2),
        (Governed.DATA_TERMS_RETENTION, lambda c, m: m.retention_days >= c.retention_days_max),
    ],
)
def test_a_row_that_is_turned_round_is_found_by_the_pairs(code: Governed, turned: object) -> None:
    table = tuple(row._replace(permits=turned) if row.code is code else row for row in EXCLUSIONS)  # type: ignore[arg-type]
    assert policy_pairs.compare(seed=5, pairs=1_500, decide=lambda case: ours(table, case)).grew
