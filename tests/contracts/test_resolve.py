"""Which workload a request is for, what it pins, and each refusal of step 5 in its order."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.resolve import Resolution, resolve
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import Instant
from tests.contracts.samples import NOW, bundle, contract


def workload(name: str, terms: str = "starter", tenant: str = "acme", unit: str = "sales") -> dict[str, Any]:
    return {"id": name, "tenant": tenant, "business_unit": unit, "priority": 2, "contract": terms}


@pytest.fixture(scope="module")
def made() -> Bundle:
    return bundle(
        workloads=[
            workload("assistant"),
            workload("extract"),
            workload("closed"),
            workload("foreign", "umbras"),
            workload("drafted", "draft"),
            workload("early", "early"),
            workload("late", "late"),
            workload("secret-plan", "umbras", "umbra", "main"),
        ],
        applications=[
            {
                "id": "web",
                "tenant": "acme",
                "workloads": ["assistant", "extract", "drafted", "early", "late", "foreign"],
                "default_workload": "assistant",
            }
        ],
        contracts=[
            contract(aliases={"gpt-4o": "beta"}),
            contract("umbras", tenant="umbra"),
            contract("draft", state="draft", approver=None),
            contract("early", effective_from="2026-06-01T00:00:00.000001Z"),
            contract("late", expires_at="2026-06-01T00:00:00Z"),
        ],
    )


def found(made: Bundle, named: str | None, model: str | None, application: str = "web") -> tuple[str, str | None]:
    resolution = resolve(made, "acme", application, named, model, NOW)
    assert isinstance(resolution, Resolution), resolution
    return resolution.workload.id, resolution.pinned


def refused(made: Bundle, named: str | None, model: str | None, application: str = "web") -> tuple[object, str]:
    refusal = resolve(made, "acme", application, named, model, NOW)
    assert isinstance(refusal, Refuse), refusal
    return refusal.reason, refusal.detail


@pytest.mark.parametrize(
    ("named", "model", "expected"),
    [
        (None, None, ("assistant", None)),
        (None, "extract", ("extract", None)),
        (None, "whatever-model", ("assistant", None)),
        (None, "alpha", ("assistant", "alpha")),
        (None, "gpt-4o", ("assistant", "beta")),
        ("extract", None, ("extract", None)),
        ("extract", "assistant", ("extract", None)),
        ("extract", "gamma", ("extract", "gamma")),
        (None, "secret-plan", ("assistant", None)),
    ],
)
def test_what_a_request_is_for(
    made: Bundle, named: str | None, model: str | None, expected: tuple[str, str | None]
) -> None:
    assert found(made, named, model) == expected


@pytest.mark.parametrize(
    ("named", "model", "expected"),
    [
        ("nowhere", None, (Governed.UNKNOWN_WORKLOAD, "")),
        ("secret-plan", None, (Governed.UNKNOWN_WORKLOAD, "")),
        ("", None, (Governed.UNKNOWN_WORKLOAD, "")),
        ("foreign", None, (Governed.TENANT_MISMATCH, "")),
        (None, "foreign", (Governed.TENANT_MISMATCH, "")),
        ("closed", None, (Governed.APP_NOT_ENTITLED_TO_WORKLOAD, "")),
        (None, "closed", (Governed.APP_NOT_ENTITLED_TO_WORKLOAD, "")),
        ("drafted", None, (Governed.CONTRACT_NOT_EXECUTABLE, "draft")),
        ("early", None, (Governed.CONTRACT_NOT_EXECUTABLE, "not_effective")),
        ("late", None, (Governed.CONTRACT_NOT_EXECUTABLE, "past_expiry")),
    ],
)
def test_each_refusal(made: Bundle, named: str | None, model: str | None, expected: tuple[object, str]) -> None:
    assert refused(made, named, model) == expected


def test_an_application_that_the_bundle_does_not_know_may_call_nothing(made: Bundle) -> None:
    assert refused(made, None, None, "ghost") == (Governed.APP_NOT_ENTITLED_TO_WORKLOAD, "application_unknown")
    assert refused(made, "assistant", None, "ghost") == (Governed.APP_NOT_ENTITLED_TO_WORKLOAD, "")
    assert refused(made, "nowhere", None, "ghost") == (Governed.UNKNOWN_WORKLOAD, "")


def test_a_contract_counts_from_its_first_microsecond_to_its_last(made: Bundle) -> None:
    def executable(named: str, now: int) -> bool:
        return isinstance(resolve(made, "acme", "web", named, None, Instant(now)), Resolution)

    assert [executable("early", NOW + shift) for shift in (0, 1)] == [False, True]
    assert [executable("late", NOW + shift) for shift in (-1, 0)] == [True, False]
