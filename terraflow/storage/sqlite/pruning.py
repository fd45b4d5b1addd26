"""Removing what has served its time, some rows a transaction, so that the work is proportional to what came to be.

1. The log is never touched, nor a counter of a month: reports and evidence stand on them.
2. Nothing that is open goes: no reservation of a request without an outcome, no counter with money reserved on it.
"""

from __future__ import annotations

from typing import NamedTuple

from terraflow.core.budget import Window
from terraflow.core.types import MICRO, Instant
from terraflow.spend.windows import window_key
from terraflow.storage.sqlite.keys import Write

SOME = 256
"""Rows a transaction, small ones: a millisecond or two."""
DAY = 86_400 * MICRO
RESERVATIONS_KEPT = 7 * DAY
"""Resolved reservations: for whoever reconciles a bill or a crash; the outcome in the log says the same for good."""
HOURS_KEPT = 100 * DAY
"""Counters of past hours: a quarter's reports, and some days to write them."""
BUNDLES_KEPT = 100
"""Superseded bundles."""


class Pruned(NamedTuple):
    """Rows that are gone, counters among them, and whether there may be more."""

    rows: int
    counters: int
    more: bool


def prune_some(write: Write, now: Instant) -> Pruned:
    """Remove up to `SOME` rows of each kind, inside a transaction."""
    reservations = write("prune_reservations", (now - RESERVATIONS_KEPT, SOME)).rowcount
    before = window_key(Window.HOUR, Instant(now - HOURS_KEPT))
    counters = write("prune_hours", (before, SOME)).rowcount
    bundles = write("prune_bundles", (BUNDLES_KEPT,)).rowcount
    return Pruned(reservations + counters + bundles, counters, SOME in (reservations, counters))
