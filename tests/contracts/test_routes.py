"""The exclusion table: each row by itself, the order of all, and what happens when anything is amiss."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from terraflow.contracts import routes
from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.exact import PolicyEvaluationError
from terraflow.contracts.routes import (
    EXCLUSIONS,
    Condition,
    Exclusion,
    RequestFacts,
    evaluate,
    exclude,
    survey,
)
from terraflow.contracts.verify import verify_bundle
from terraflow.core.reasons import Governed
from tests.contracts.samples import KEYS, NOW, document, external, signed
from trust.policy_cases import Case, cases, conditions_of, facts_of, surveyed, verdicts


def base() -> Case:
    """An external, paid, permitted capability for which every row has something to read."""
    prices = {"input": 1, "output": 1, "audio_input": 1, "audio_output": 1}
    entry = external("m", data_class_max="confidential", prefix_cache="dedicated", prices=prices)
    return Case(
        contract={
            "id": "terms", "version": 1, "tenant": "acme", "state": "approved",
            "author": "asha", "approver": "ravi",
            "effective_from": "2026-01-01T00:00:00Z", "expires_at": "2027-01-01T00:00:00Z",
            "capabilities": ["m"], "families": ["sim"], "jurisdictions": ["in"], "consequence_tier": "moderate",
            "egress": "allowed", "training_allowed": False, "retention_days_max": 30,
            "data_classes": ["confidential"], "sensitive_types": ["pii"], "tiers": ["standard"],
            "default_tier": "standard",
        },
        capabilities=[entry],
        request={
            "data_class": "confidential", "sensitive_types": ["pii"], "tools_offered": True,
            "input_bytes": 1_000, "output_tokens_max": 500, "audio": True,
        },
        states=[
            {"enabled": True, "secret_present": True, "healthy": True,
             "inside_boundary": True, "has_free_slot": True, "under_pressure": False},
        ],
    )  # fmt: skip


Break = Callable[[Case], None]


def contract(**terms: Any) -> Break:
    return lambda case: case.contract.update(terms)


def capability(**changes: Any) -> Break:
    return lambda case: case.capabilities[0].update(changes)


def request(**facts: Any) -> Break:
    return lambda case: case.request.update(facts)


def state(**changes: Any) -> Break:
    return lambda case: case.states[0].update(changes)


def both(*breaks: Break) -> Break:
    def apply(case: Case) -> None:
        for change in breaks:
            change(case)

    return apply


OUTSIDE = both(capability(boundary="private"), state(inside_boundary=False))
LEAVES = both(capability(boundary="external"), contract(egress="never"))
BURST = both(capability(boundary="external"), contract(egress="burst"))

# The order is that of the product's documentation (a governed request, step 11).
ROWS: list[tuple[Governed, str, Break]] = [
    (Governed.CAPABILITY_NOT_IN_CONTRACT, "", contract(capabilities=["other"])),
    (Governed.MODEL_FAMILY_NOT_ALLOWED, "", contract(families=["other"])),
    (Governed.LIFECYCLE_NOT_APPROVED, "", capability(lifecycle="deprecated")),
    (Governed.CONSEQUENCE_TIER_NOT_APPROVED, "", capability(consequence_tiers=["low", "high"])),
    (Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY, "", OUTSIDE),
    (Governed.EXTERNAL_EGRESS_NOT_ALLOWED, "", LEAVES),
    (Governed.JURISDICTION_NOT_ALLOWED, "", contract(jurisdictions=["eu"])),
    (Governed.DATA_TERMS_TRAINING, "", capability(terms={"trains": True, "retention_days": 0})),
    (Governed.DATA_TERMS_RETENTION, "", contract(retention_days_max=-1)),
    (Governed.DATA_CLASS_EXCEEDS_CAPABILITY, "", capability(data_class_max="internal")),
    (Governed.SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY, "", capability(sensitive_types=["phi"])),
    (Governed.PREFIX_CACHE_SHARED, "", capability(prefix_cache="shared")),
    (Governed.TOOLS_UNSUPPORTED, "", capability(tools=False)),
    (Governed.CONTEXT_WINDOW_EXCEEDED, "", request(input_bytes=1_000_000)),
    (Governed.PROVIDER_DISABLED, "", capability(enabled=False)),
    (Governed.PROVIDER_DISABLED, "PRICE_UNKNOWN", capability(prices=None)),
    (Governed.PROVIDER_DISABLED, "AUDIO_PRICE_UNKNOWN", capability(prices={"input": 1, "output": 1})),
    (Governed.PROVIDER_DISABLED, "SWITCHED_OFF", state(enabled=False)),
    (Governed.PROVIDER_DISABLED, "SECRET_MISSING", state(secret_present=False)),
    (Governed.PROVIDER_UNHEALTHY, "", state(healthy=False)),
    (Governed.BURST_ONLY_ON_CAPACITY, "", BURST),
]
ROWS[8] = (
    Governed.DATA_TERMS_RETENTION, "",
    both(contract(retention_days_max=29), lambda case: case.capabilities[0]["terms"].update(retention_days=30)),
)  # fmt: skip
IDS = [f"{code}{detail and '-'}{detail}" for code, detail, _ in ROWS]


def plainly(case: Case) -> Exclusion | None:
    under = surveyed(case)
    first = case.capabilities[0]["id"]
    return exclude(
        under.contract, under.routes[0].capability, facts_of(case.request), conditions_of(case)[first], False
    )


def test_the_base_is_permitted() -> None:
    assert verdicts(base())[0].permitted
    assert plainly(base()) is None


def test_the_tables_rows_are_the_documented_ones_in_their_order() -> None:
    assert [(row.code, row.detail) for row in EXCLUSIONS] == [(code, detail) for code, detail, _ in ROWS]
    assert len({row.code for row in EXCLUSIONS}) == 17


@pytest.mark.parametrize(("code", "detail", "breaks"), ROWS, ids=IDS)
def test_each_row_excludes_by_itself(code: Governed, detail: str, breaks: Break) -> None:
    case = base()
    breaks(case)
    (verdict,) = verdicts(case)
    assert (verdict.exclusion, verdict.detail) == (code, detail)
    row = plainly(case)
    assert row is not None
    assert (row.code, row.detail) == (code, detail)


EXCLUSIVE = [{4, 5}, {4, 19}, {5, 19}, {4, 15}]
"""Rows that cannot hold together: one needs a private capability, the other an external one, or another egress."""


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in itertools.combinations(range(20), 2) if set(pair) not in EXCLUSIVE]
)
def test_of_two_rows_that_hold_the_earlier_is_named(first: int, second: int) -> None:
    case = base()
    ROWS[second][2](case)
    ROWS[first][2](case)
    (verdict,) = verdicts(case)
    assert (verdict.exclusion, verdict.detail) == ROWS[first][:2]


def test_a_row_that_only_the_bundle_answers_still_waits_for_the_live_rows_before_it() -> None:
    case = base()
    both(OUTSIDE, contract(jurisdictions=["eu"]))(case)
    assert verdicts(case)[0].exclusion is Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY
    state(inside_boundary=True)(case)
    assert verdicts(case)[0].exclusion is Governed.JURISDICTION_NOT_ALLOWED


def test_what_was_worked_out_beforehand_agrees_with_the_plain_table() -> None:
    for case in cases(seed=3, count=1_500):
        under, facts, conditions = surveyed(case), facts_of(case.request), conditions_of(case)
        inside = tuple(
            verdict
            for route, verdict in zip(under.routes, evaluate(under, facts, conditions), strict=True)
            if route.capability.boundary is routes.Boundary.PRIVATE
        )
        exhausted = routes.private_capacity_exhausted(inside, conditions)
        for route, verdict in zip(under.routes, evaluate(under, facts, conditions), strict=True):
            row = exclude(under.contract, route.capability, facts, conditions[route.capability.id], exhausted)
            assert (verdict.exclusion, verdict.detail) == ((row.code, row.detail) if row else (None, ""))


def test_the_window_counts_bytes_for_paid_capabilities_and_a_third_of_them_for_others() -> None:
    for boundary, limit in (("external", 99_500), ("private", 3 * 99_500)):
        case = base()
        both(capability(boundary=boundary), request(input_bytes=limit))(case)
        assert verdicts(case)[0].permitted
        request(input_bytes=limit + 1)(case)
        assert verdicts(case)[0].exclusion is Governed.CONTEXT_WINDOW_EXCEEDED
    case = base()
    request(input_bytes=100_000 - 4_096, output_tokens_max=50_000)(case)
    assert verdicts(case)[0].permitted


def test_a_paid_capability_without_a_named_secret_is_off_and_a_private_one_is_not() -> None:
    case = base()
    both(capability(secret=None), state(secret_present=True))(case)
    assert (verdicts(case)[0].exclusion, verdicts(case)[0].detail) == (
        Governed.PROVIDER_DISABLED,
        "SECRET_MISSING",
    )
    both(capability(boundary="private"), state(secret_present=False))(case)
    assert verdicts(case)[0].permitted


def burst(*inside: Break) -> list[Governed | None]:
    """The verdicts of private capabilities, each with a change, and of an external one under a burst contract."""
    case = base()
    case.contract |= {"egress": "burst", "capabilities": ["m", "p0", "p1"]}
    outer = case.capabilities[0]
    for at, change in enumerate(inside):
        part = base()
        capability(id=f"p{at}", boundary="private")(part)
        change(part)
        case.capabilities += part.capabilities
        case.states += part.states
    case.capabilities = [*case.capabilities[1:], outer]
    case.states = [*case.states[1:], case.states[0]]
    return [verdict.exclusion for verdict in verdicts(case)]


FULL, PRESSED, ILL, OFF, GONE = (
    state(has_free_slot=False),
    state(under_pressure=True),
    state(healthy=False),
    state(enabled=False),
    capability(family="other"),
)


@pytest.mark.parametrize(
    ("inside", "leaves"),
    [
        ((), False),
        ((both(),), False),
        ((FULL,), True),
        ((PRESSED,), True),
        ((PRESSED, both()), False),
        ((PRESSED, FULL, ILL), True),
        ((both(PRESSED, OFF),), False),
        ((ILL,), True),
        ((OFF,), False),
        ((GONE,), False),
        ((FULL, both()), False),
        ((FULL, ILL), True),
        ((FULL, OFF), True),
        ((OFF, GONE), False),
        ((both(FULL, OFF),), False),
        ((both(ILL, GONE),), False),
    ],
)
def test_burst_leaves_only_when_private_capacity_is_exhausted(inside: tuple[Break, ...], leaves: bool) -> None:
    assert burst(*inside)[-1] is (None if leaves else Governed.BURST_ONLY_ON_CAPACITY)


def test_health_alone_stood_in_the_way_only_if_no_later_row_excludes() -> None:
    case = base()
    ILL(case)
    assert verdicts(case)[0].awaits_health
    BURST(case)
    assert verdicts(case)[0].exclusion is Governed.PROVIDER_UNHEALTHY
    assert not verdicts(case)[0].awaits_health


def test_nothing_that_the_table_reads_can_be_left_out_of_a_bundle() -> None:
    """Singly and in pairs, of contract and capability: the bundle is refused."""
    read = Reader()
    read.whole_table()
    of_contract = {"capabilities", "families", "jurisdictions", "consequence_tier", "egress", "training_allowed"}
    of_contract |= {"retention_days_max"}
    assert read.contract == of_contract
    compiled = {"trains": "terms", "retention_days": "terms", "priced": "prices", "paid": "provider"}
    compiled["audio_priced"] = "prices"
    of_capability = {compiled.get(name, name) for name in read.capability} - {"secret_named"}
    dropped = [("contracts", name) for name in sorted(of_contract)]
    dropped += [("capabilities", name) for name in sorted(of_capability)]
    assert len(dropped) == 7 + 16
    for pair in itertools.combinations_with_replacement(dropped, 2):
        value = document()
        for place, name in pair:
            for entry in value[place]:
                entry.pop(name, None)
        with pytest.raises(BundleRejected):
            verify_bundle(signed(value), KEYS, NOW)


def test_nothing_that_the_table_reads_can_be_left_out_of_a_request_or_a_state() -> None:
    read = Reader()
    read.whole_table()
    facts, conditions = base().request, base().states[0]
    assert read.facts == set(facts)
    assert read.condition | {"has_free_slot", "under_pressure"} == set(conditions)
    for record, values in ((RequestFacts, facts), (Condition, conditions)):
        for pair in itertools.combinations_with_replacement(values, 2):
            with pytest.raises(TypeError):
                record(**{name: value for name, value in values.items() if name not in pair})
    with pytest.raises(PolicyEvaluationError):
        evaluate(surveyed(base()), facts_of(facts), {})


class Reader:
    """Notes which fields the rows ask for, over cases in which each row is reached and holds."""

    def __init__(self) -> None:
        self.contract: set[str] = set()
        self.capability: set[str] = set()
        self.facts: set[str] = set()
        self.condition: set[str] = set()

    def whole_table(self) -> None:
        for breaks in [both(), capability(secret=None), *(row[2] for row in ROWS)]:
            case = base()
            breaks(case)
            under = surveyed(case)
            exclude(
                _Noting(under.contract, self.contract),  # type: ignore[arg-type]
                _Noting(under.routes[0].capability, self.capability),  # type: ignore[arg-type]
                _Noting(facts_of(case.request), self.facts),  # type: ignore[arg-type]
                _Noting(conditions_of(case)["m"], self.condition),  # type: ignore[arg-type]
                False,
            )


class _Noting:
    def __init__(self, record: Any, asked: set[str]) -> None:
        self._record, self._asked = record, asked

    def __getattr__(self, name: str) -> Any:
        self._asked.add(name)
        return getattr(self._record, name)


WRONG: list[Any] = [None, float("nan"), "", object(), [], frozenset({None}), -1, "moderate"]


def test_a_compiled_record_with_a_value_of_another_type_cannot_be_built() -> None:
    under = surveyed(base())
    facts, condition = facts_of(base().request), conditions_of(base())["m"]
    for record in (under.contract, under.routes[0].capability, facts, condition):
        for name in record.__struct_fields__:
            kept = getattr(record, name)
            for value in WRONG:
                if type(value) is type(kept) and not isinstance(kept, (frozenset, int)) and value:
                    continue
                if name == "request_limit_micro_usd" and value is None:
                    continue
                with pytest.raises(PolicyEvaluationError):
                    msgspec.structs.replace(record, **{name: value})


def test_a_field_that_is_missing_or_wrong_never_permits_in_the_plain_table() -> None:
    """The rows themselves, over stand-ins that skip the records' own checks.

    Left to those checks: `paid`, since what is not known to be unpaid counts as paid, and `output_tokens_max`, since
    the smaller of a number and NaN is the number.
    """
    for variant in (both(), capability(boundary="private"), state(has_free_slot=False)):
        case = base()
        variant(case)
        under = surveyed(case)
        whole = [under.contract, under.routes[0].capability, facts_of(case.request), conditions_of(case)["m"]]
        needed = Reader()
        exclude(
            *(
                _Noting(record, asked)  # type: ignore[arg-type]
                for record, asked in zip(
                    whole, (needed.contract, needed.capability, needed.facts, needed.condition), strict=True
                )
            ),
            False,
        )
        asked = (needed.contract, needed.capability, needed.facts, needed.condition)
        for at, names in enumerate(asked):
            for name in names - {"paid", "output_tokens_max"}:
                for value in (None, float("nan"), "", object()):
                    assert not permits_with(whole, at, name, value), (name, value)


def permits_with(whole: list[Any], at: int, name: str, value: Any) -> bool:
    record = {field: getattr(whole[at], field) for field in whole[at].__struct_fields__} | {name: value}
    parts = [*whole[:at], SimpleNamespace(**record), *whole[at + 1 :]]
    del record[name]
    gone = [*whole[:at], SimpleNamespace(**record), *whole[at + 1 :]]
    return any(_permits(given) for given in (parts, gone))


def _permits(parts: list[Any]) -> bool:
    try:
        return exclude(parts[0], parts[1], parts[2], parts[3], False) is None
    except PolicyEvaluationError:
        return False


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


FAULTS: dict[str, Callable[..., object]] = {
    "exception": raising(RuntimeError("x")),
    "timeout": raising(TimeoutError()),
    "none": lambda *_: None,
    "nan": lambda *_: float("nan"),
    "wrong type": lambda *_: "yes",
    "one": lambda *_: 1,
    "empty": lambda *_: (),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("at", range(len(EXCLUSIONS)), ids=IDS)
def test_a_row_that_fails_in_any_way_denies_everything(at: int, fault: Callable[..., object]) -> None:
    table = (*EXCLUSIONS[:at], EXCLUSIONS[at]._replace(permits=fault), *EXCLUSIONS[at + 1 :])
    case = base()
    under = surveyed(case)
    compiled = tuple(route.capability for route in under.routes)
    with pytest.raises(PolicyEvaluationError):
        evaluate(survey(under.contract, compiled, table), facts_of(case.request), conditions_of(case))
    with pytest.raises(PolicyEvaluationError):
        exclude(under.contract, compiled[0], facts_of(case.request), conditions_of(case)["m"], False, table)


@pytest.mark.parametrize("facts", [None, {}, "x", SimpleNamespace(**base().request)], ids=repr)
def test_without_facts_nothing_is_evaluated(facts: Any) -> None:
    with pytest.raises(PolicyEvaluationError):
        evaluate(surveyed(base()), facts, conditions_of(base()))


@pytest.mark.parametrize("conditions", [None, {}, {"m": None}, {"m": True}, {"m": SimpleNamespace()}], ids=repr)
def test_without_conditions_nothing_is_evaluated(conditions: Any) -> None:
    with pytest.raises(PolicyEvaluationError):
        evaluate(surveyed(base()), facts_of(base().request), conditions)
