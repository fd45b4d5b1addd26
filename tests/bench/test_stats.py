"""The bench's statistics, on series small enough to check by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import growth, middle, percentile


@pytest.mark.parametrize(
    ("rank", "expected"),
    [(1, 10), (20, 10), (21, 20), (50, 30), (60, 30), (61, 40), (99, 50), (100, 50)],
)
def test_nearest_rank_of_five_values(rank: float, expected: float) -> None:
    assert percentile([50, 10, 40, 20, 30], rank) == expected


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(1, 100))
def test_a_percentile_is_a_value_that_rank_per_cent_do_not_exceed(values: list[int], rank: int) -> None:
    found = percentile(values, rank)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= rank * len(values)
    assert sum(value < found for value in values) * 100 < rank * len(values)


def test_a_percentile_of_nothing_is_zero_and_a_rank_has_bounds() -> None:
    assert percentile([], 50) == 0.0
    for rank in (0, 101):
        with pytest.raises(ValueError, match="rank"):
            percentile([1], rank)


def test_rounds_merge_to_medians_but_errors_add_up() -> None:
    rounds = [
        {
            "rps": 10.0,
            "errors": 0,
            "first_error": "",
            "statuses": {"200": 5},
            "processes": {"server": {"cpu": 3.0}},
        },
        {"rps": 90.0, "errors": 2, "first_error": "x", "statuses": {"200": 3, "500": 2}, "processes": {}},
        {"rps": 20.0, "errors": 1, "first_error": "y", "statuses": {"200": 4, "503": 1}, "processes": {}},
    ]
    rounds[1]["processes"] = rounds[2]["processes"] = {"server": {"cpu": 1.0}}
    assert middle(rounds) == {
        "rps": 20.0,
        "errors": 3,
        "first_error": "x",
        "statuses": {"200": 12, "500": 2, "503": 1},
        "processes": {"server": {"cpu": 1.0}},
    }


def test_growth_looks_at_the_second_half_only() -> None:
    warming_up_then_flat = [float(value) for value in range(50)] + [100.0] * 50
    assert growth(warming_up_then_flat) == 0.0
    leaking = [100.0] * 60 + [110.0] * 40
    assert growth(leaking) == pytest.approx(0.1)


def test_growth_of_too_few_samples_is_not_measured() -> None:
    with pytest.raises(KeyError):
        growth([1.0] * 19)
