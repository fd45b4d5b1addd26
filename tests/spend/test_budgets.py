"""Windows, budget lines, and the life of a reservation."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.core.budget import Level, Window
from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine
from terraflow.spend.budgets import budget_lines, has_room
from terraflow.spend.reservation import LIFE, Event, NotOpen, State, resolve
from terraflow.spend.windows import seconds_left, window_end, window_key


def at(text: str) -> Instant:
    return Instant(round(datetime.fromisoformat(text).timestamp() * 1_000_000))


@pytest.mark.parametrize(
    ("when", "hour", "month", "hour_end", "month_end"),
    [
        ("2026-11-30T14:00:00Z", "2026-11-30T14", "2026-11", "2026-11-30T15:00:00Z", "2026-12-01T00:00:00Z"),
        ("2026-11-30T14:59:59.999999Z", "2026-11-30T14", "2026-11", "2026-11-30T15:00:00Z", "2026-12-01T00:00:00Z"),
        ("2026-12-31T23:30:00Z", "2026-12-31T23", "2026-12", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2028-02-29T12:00:00Z", "2028-02-29T12", "2028-02", "2028-02-29T13:00:00Z", "2028-03-01T00:00:00Z"),
        ("2026-03-29T03:30:00+02:00", "2026-03-29T01", "2026-03", "2026-03-29T02:00:00Z", "2026-04-01T00:00:00Z"),
    ],
)
def test_windows_are_keys_in_utc(when: str, hour: str, month: str, hour_end: str, month_end: str) -> None:
    instant = at(when)
    assert (window_key(Window.HOUR, instant), window_key(Window.MONTH, instant)) == (hour, month)
    assert window_end(Window.HOUR, instant) == at(hour_end)
    assert window_end(Window.MONTH, instant) == at(month_end)


def test_what_is_left_of_a_window_is_rounded_up() -> None:
    assert seconds_left(Window.HOUR, at("2026-11-30T14:59:59.999999Z")) == 1
    assert seconds_left(Window.HOUR, at("2026-11-30T14:59:58.999999Z")) == 2
    assert seconds_left(Window.HOUR, at("2026-11-30T14:00:00Z")) == 3_600


@given(st.integers(0, 4_000_000_000_000_000), st.sampled_from(Window))
def test_an_instant_is_in_its_window_and_the_windows_end_in_the_next(instant: int, window: Window) -> None:
    end = window_end(window, Instant(instant))
    assert end > instant
    assert window_key(window, Instant(end - 1)) == window_key(window, Instant(instant))
    assert window_key(window, end) > window_key(window, Instant(instant))
    pattern = "%Y-%m-%dT%H" if window is Window.HOUR else "%Y-%m"
    assert window_key(window, Instant(instant)) == datetime.fromtimestamp(instant // 10**6, UTC).strftime(pattern)


class Rule(NamedTuple):
    level: Level
    of: str
    window: Window
    limit_micro_usd: int | None


def test_a_request_touches_its_counters_in_their_order_under_the_windows_of_the_instant() -> None:
    counters = (Rule(Level.WORKLOAD, "w", Window.HOUR, 5), Rule(Level.TENANT, "acme", Window.MONTH, None))
    assert budget_lines("acme", counters, at("2026-11-30T14:10:00Z")) == (
        BudgetLine("acme", "workload", "w", "hour", "2026-11-30T14", 5),
        BudgetLine("acme", "tenant", "acme", "month", "2026-11", None),
    )


@pytest.mark.parametrize(
    ("limit", "reserved", "posted", "amount", "room"),
    [
        (10, 0, 0, 10, True),
        (10, 0, 0, 11, False),
        (10, 4, 4, 2, True),
        (10, 4, 4, 3, False),
        (0, 0, 0, 0, True),
        (5, 0, 9, 0, False),
    ],
)
def test_room_is_up_to_the_limit_itself(limit: int, reserved: int, posted: int, amount: int, room: bool) -> None:
    assert has_room(limit, reserved, posted, amount) is room


def test_the_table_of_a_reservations_life_is_total_and_every_end_is_final() -> None:
    assert set(LIFE) == set(product(State, Event))
    assert {after for (state, _), after in LIFE.items() if state is State.RESERVED} == {State.POSTED, State.VOIDED}
    for state, event in LIFE:
        if state is not State.RESERVED:
            with pytest.raises(NotOpen):
                resolve(state, event)
    assert resolve(State.RESERVED, Event.POST) is State.POSTED
