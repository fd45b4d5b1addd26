"""In any sixty seconds a workload gets its limit, and not one more."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from terraflow.gateway.rate import Rate


def test_the_limit_passes_and_the_next_is_told_how_long_to_wait() -> None:
    rate = Rate()
    assert [rate.take("t", "w", 3, now) for now in (0.0, 1.0, 2.0)] == [None, None, None]
    assert rate.take("t", "w", 3, 3.0) == 57
    assert rate.take("t", "w", 3, 60.0) is None
    assert rate.take("t", "w", 3, 60.5) == 1


def test_workloads_and_tenants_do_not_share() -> None:
    rate = Rate()
    assert rate.take("t", "w", 1, 0.0) is None
    assert rate.take("t", "other", 1, 0.0) is None
    assert rate.take("u", "w", 1, 0.0) is None
    assert rate.take("t", "w", 1, 0.0) == 60


def test_a_refused_request_does_not_count() -> None:
    rate = Rate()
    rate.take("t", "w", 1, 0.0)
    for second in range(1, 60):
        assert rate.take("t", "w", 1, float(second)) is not None
    assert rate.take("t", "w", 1, 60.0) is None


@given(
    limit=st.integers(1, 5),
    gaps=st.lists(st.floats(0, 40, allow_nan=False), min_size=1, max_size=60),
)
def test_no_window_ever_holds_more_than_the_limit(limit: int, gaps: list[float]) -> None:
    rate, now, passed = Rate(), 0.0, deque[float]()
    for gap in gaps:
        now += gap
        if rate.take("t", "w", limit, now) is None:
            passed.append(now)
    for start in passed:
        assert sum(start <= at < start + 60.0 for at in passed) <= limit


def test_an_idle_workload_is_forgotten() -> None:
    rate = Rate()
    for number in range(1000):
        rate.take("t", f"w{number}", 1, float(number))
    assert len(rate._seen) < 100
