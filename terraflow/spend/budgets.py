"""Budget arithmetic: which counters a request touches, and whether an amount fits.

1. A request touches the same counters whether or not they have a limit: what is counted today can be limited
   tomorrow.
2. At no instant may reserved + posted exceed a limit through a reservation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from terraflow.core.budget import Level, Window
from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine
from terraflow.spend.windows import window_key


class Counter(Protocol):
    """One counter of a workload's cost, as its bundle has it; `limit_micro_usd` None counts without limiting."""

    @property
    def level(self) -> Level: ...
    @property
    def of(self) -> str: ...
    @property
    def window(self) -> Window: ...
    @property
    def limit_micro_usd(self) -> int | None: ...


def has_room(limit: int, reserved: int, posted: int, amount: int) -> bool:
    """Whether `amount` more may be reserved on a counter, all in micro-dollars."""
    return reserved + posted + amount <= limit


def budget_lines(tenant: str, counters: Iterable[Counter], at: Instant) -> tuple[BudgetLine, ...]:
    """The counters of a request at an instant, in their order: a refusal names the first that has no room."""
    keys = {window: window_key(window, at) for window in Window}
    return tuple([BudgetLine(tenant, c.level, c.of, c.window, keys[c.window], c.limit_micro_usd) for c in counters])
