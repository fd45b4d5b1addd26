"""What a caller may declare of a request, in headers or, of an invocation, in the body: the words and their merging.

1. Each thing may be said in one place or in both; what is said twice must be the same.
2. A run's budget is decimal dollars, exact to the micro-dollar, and at most a billion.
"""

from __future__ import annotations

import re

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.types import MICRO, MicroUsd, parse_usd, usd
from terraflow.gateway.exchange import Declared

WORKLOAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
WORKLOAD_RULE = "must be a workload's id"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
RUN_RULE = "must be 1 to 128 of A-Z, a-z, 0-9, dot, dash, underscore and colon, and begin with a letter or digit"
RUN_BUDGET_MAX = MicroUsd(1_000_000_000 * MICRO)
DEADLINE_MS_MAX = 9_999_999_999

# fmt: off
_TWICE = (
    ("workload",        "workload",        "x-terraflow-workload"),
    ("data_class",      "data_class",      "x-terraflow-data-class"),
    ("sensitive_types", "sensitive_types", "x-terraflow-sensitive-types"),
    ("deadline_ms",     "deadline_ms",     "x-terraflow-deadline-ms"),
    ("run_id",          "run.id",          "x-terraflow-run-id"),
    ("run_budget",      "run.budget_usd",  "x-terraflow-run-budget-usd"),
)
# fmt: on
"""What can be said in both places: the field of `Declared`, the body's field, the header."""


def run_budget(said: str) -> MicroUsd | str:
    """The micro-dollars of a run's budget, or the rule that it breaks."""
    try:
        amount = parse_usd(said)
    except ValueError:
        return "must be decimal dollars, with at most six places"
    return amount if amount <= RUN_BUDGET_MAX else f"must be at most {usd(RUN_BUDGET_MAX)}"


def combined(head: Declared, body: Declared) -> Declared | Refuse:
    """Everything that was declared in either place, or INVALID_REQUEST where they contradict each other."""
    found = {}
    for field, path, header in _TWICE:
        first, second = getattr(head, field), getattr(body, field)
        if _said(first) and _said(second) and first != second:
            return invalid_request(path, f"must not contradict {header}")
        found[field] = first if _said(first) else second
    return Declared(idempotency_key=head.idempotency_key, capability=body.capability, **found)


def _said(value: object) -> bool:
    return value is not None and value != frozenset()
