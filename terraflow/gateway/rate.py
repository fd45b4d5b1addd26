"""Requests a minute of a workload, as a sliding window.

1. In any 60 seconds at most `limit` requests pass; a refused one does not count.
2. A workload's memory is at most `limit` instants. Workloads stand in the order in which they last passed, so that
   those unseen for a minute are in front, and go when another one comes.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque

WINDOW_S = 60.0


class Rate:
    """The windows of one process, keyed by (tenant, workload)."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def take(self, tenant: str, workload: str, limit: int, now: float) -> int | None:
        """Count a request at monotonic second `now`; None if it passes, else whole seconds until one would."""
        key = (tenant, workload)
        seen = self._seen.get(key)
        if seen is None:
            self._forget(now)
            seen = self._seen[key] = deque()
        while seen and seen[0] <= now - WINDOW_S:
            seen.popleft()
        if len(seen) < limit:
            seen.append(now)
            self._seen.move_to_end(key)
            return None
        return max(1, math.ceil(seen[0] + WINDOW_S - now)) if seen else math.ceil(WINDOW_S)

    def _forget(self, now: float) -> None:
        while self._seen:
            key = next(iter(self._seen))
            seen = self._seen[key]
            if seen and seen[-1] > now - WINDOW_S:
                return
            del self._seen[key]
