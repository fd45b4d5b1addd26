"""When to stop asking a service that does not answer, so that one that is dead costs nobody anything.

1. So many failures in a row open it: nobody asks. A success in between starts the count anew.
2. While it is open, somebody off every request's path tries at growing intervals; a try that answers in time closes it.
"""

from __future__ import annotations

FAILURES_MAX = 3
"""Misses in a row: a busy moment is no outage, and three deadlines are all that one costs."""
TRY_FIRST_S = 0.25
TRY_MAX_S = 5.0


class Breaker:
    """The state of rule 1 and 2."""

    __slots__ = ("_failures", "_tries")

    def __init__(self) -> None:
        self._failures = 0
        self._tries = 0

    @property
    def open(self) -> bool:
        """Whether nobody should ask."""
        return self._failures >= FAILURES_MAX

    def failed(self) -> None:
        """An answer that did not come, or not in time."""
        self._failures += 1

    def succeeded(self) -> None:
        """An answer in time."""
        self._failures = self._tries = 0

    def next_try_s(self) -> float:
        """Seconds until the next try of an open one; each call is one more try."""
        self._tries += 1
        return float(min(TRY_MAX_S, TRY_FIRST_S * 2 ** (self._tries - 1)))
