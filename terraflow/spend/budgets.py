"""Budget arithmetic: which counters a request touches, and whether an amount fits.

1. A request touches the same counters whether or not they have a limit: what is counted today can be limited
   tomorrow.
2. At no instant may reserved + posted exceed a limit through a reservation.
"""

from __future__ import annotations

from collections.abc import Mapping

from terraflow.core.budget import Level, Window
from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine
from terraflow.spend.windows import window_key

Limits = Mapping[tuple[str, str, str], int]
"""A tenant's limits in micro-dollars by (level, of, window)."""


def has_room(limit: int, reserved: int, posted: int, amount: int) -> bool:
    """Whether `amount` more may be reserved on a counter, all in micro-dollars."""
    return reserved + posted + amount <= limit


def budget_lines(
    *, tenant: str, business_unit: str, workload: str, limits: Limits, at: Instant
) -> tuple[BudgetLine, ...]:
    """The six counters of a request at an instant: workload, business unit and tenant, each by hour and month.

    Lines without a limit have `limit` None. The narrowest level comes first, so a refusal names it first.
    """
    keys = tuple((window.value, window_key(window, at)) for window in (Window.HOUR, Window.MONTH))
    levels = (
        (Level.WORKLOAD.value, workload),
        (Level.BUSINESS_UNIT.value, business_unit),
        (Level.TENANT.value, tenant),
    )
    return tuple(
        BudgetLine(tenant, level, of, window, key, limits.get((level, of, window)))
        for level, of in levels
        for window, key in keys
    )
