"""The bench's bundle passes every check that an activation makes, and stands as the cases need it."""

from __future__ import annotations

from bench import cases
from bench.plane import bundle_source
from terraflow.contracts.document import BundleDocument
from terraflow.contracts.references import find_problems
from terraflow.contracts.source import parse_source


def document() -> BundleDocument:
    return parse_source(bundle_source("http://127.0.0.1:9/v1").encode())


def test_the_source_has_no_problem_and_is_in_force_now() -> None:
    found = document()
    assert find_problems(found) == ()
    assert found.issued < found.expires


def test_every_case_names_the_workload_or_a_capability_that_its_contract_allows() -> None:
    found = document()
    names = {workload.id for workload in found.workloads} | set(found.contracts[0].capabilities)
    assert {case.model for case in cases.CASES} <= names


def test_budgets_stand_on_every_level_and_window_and_no_limit_or_cache_on_the_workload() -> None:
    found = document()
    assert {(budget.level, budget.window) for budget in found.budgets} == {
        (level, window) for level in ("workload", "business_unit", "tenant") for window in ("hour", "month")
    }
    contract = found.contracts[0]
    assert contract.requests_per_minute is None and contract.response_cache is None
    assert contract.request_limit_usd is not None
    assert all(capability.paid and capability.prices is not None for capability in found.capabilities)
