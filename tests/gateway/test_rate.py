"""In any sixty seconds a workload gets its limit, and not one more."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

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


def test_who_still_comes_is_not_forgotten_and_who_comes_anew_costs_no_look_at_all_of_them() -> None:
    rate = Rate()
    for number in range(1000):
        rate.take("t", f"w{number}", 2, 0.0)
    assert rate.take("t", "w0", 2, 59.0) is None
    looked = _Counted(rate._seen)
    rate._seen = looked
    rate.take("t", "new", 1, 59.5)
    assert looked.iterated <= 2
    rate.take("t", "newer", 1, 61.0)
    assert set(looked) == {("t", "w0"), ("t", "new"), ("t", "newer")}


class _Counted(OrderedDict[tuple[str, str], deque[float]]):
    """A dict that counts how many of its keys and rows were looked at."""

    iterated = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for key in super().__iter__():
            self.iterated += 1
            yield key

    def items(self) -> Any:
        return [(key, self[key]) for key in self]
