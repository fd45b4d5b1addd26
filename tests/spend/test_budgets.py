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
from terraflow.spend.windows import window_key


def at(text: str) -> Instant:
    return Instant(round(datetime.fromisoformat(text).timestamp() * 1_000_000))


@pytest.mark.parametrize(
    ("when", "hour", "month"),
    [
        ("2026-11-30T14:00:00Z", "2026-11-30T14", "2026-11"),
        ("2026-11-30T14:59:59.999999Z", "2026-11-30T14", "2026-11"),
        ("2026-12-31T23:30:00Z", "2026-12-31T23", "2026-12"),
        ("2028-02-29T12:00:00Z", "2028-02-29T12", "2028-02"),
        ("2026-03-29T03:30:00+02:00", "2026-03-29T01", "2026-03"),
    ],
)
def test_windows_are_keys_in_utc(when: str, hour: str, month: str) -> None:
    instant = at(when)
    assert (window_key(Window.HOUR, instant), window_key(Window.MONTH, instant)) == (hour, month)


@given(st.integers(0, 4_000_000_000_000_000), st.sampled_from(Window))
def test_every_instant_is_in_one_window_and_keys_are_in_order(instant: int, window: Window) -> None:
    pattern, longest_s = ("%Y-%m-%dT%H", 3_600) if window is Window.HOUR else ("%Y-%m", 31 * 86_400)
    key = window_key(window, Instant(instant))
    assert key == datetime.fromtimestamp(instant // 10**6, UTC).strftime(pattern)
    assert window_key(window, Instant(instant + longest_s * 10**6)) > key


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
