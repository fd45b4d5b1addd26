"""What has grown of late and should not: a counter since the start warns for ever of what is long mended.

1. Samples are a minute apart and `WINDOW_S` of them are kept, so that growth is told of the last ten to eleven minutes.
2. What is counted is bounded where it is counted: tenants by the index, feeds by the settings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.index.index import Index
from terraflow.hints.index.said import Cause

WINDOW_S = 600.0
EVERY_S = 60.0
SERIES_MAX = 1_024

LOST_TO_QUOTA = "lost_to_quota"
FEED_TROUBLES = ("faults", "undecodable", "replays_failed", "lora_unmapped")
"""Counters of feeds that stand still when all is well."""

Key = tuple[str, str, str]
"""What, the tenant, and the feed's replica, "" for a tenant's own."""


def troubles(index: Index, running: Iterable[Feeds]) -> dict[Key, int]:
    """The counters that are watched, as they stand; those at 0 are left out."""
    found: dict[Key, int] = {}
    for (tenant, reason), count in index.tenant_removals.items():
        if reason == Cause.QUOTA and count:
            found[LOST_TO_QUOTA, tenant, ""] = count
    for feeds in running:
        numbers = feeds.numbers()
        for settings in feeds.settings:
            for name in FEED_TROUBLES:
                if count := numbers[settings.name].get(name, 0):
                    found[name, settings.tenant, settings.replica] = count
    return found


class Recent:
    """The growth of counters within the window. `counts` and `now` (monotonic seconds) are asked on the loop."""

    def __init__(self, counts: Callable[[], Mapping[Key, int]], now: Callable[[], float]) -> None:
        self._counts = counts
        self._now = now
        self._samples: deque[tuple[float, Mapping[Key, int]]] = deque([(now(), {})])

    async def take(self) -> None:
        """Take a sample; to be called every `EVERY_S`."""
        now = self._now()
        self._samples.append((now, self._counts()))
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def growth(self) -> dict[Key, int]:
        """What has grown, and by how much."""
        before = self._samples[0][1]
        grown = ((key, count - before.get(key, 0)) for key, count in self._counts().items())
        return {key: more for key, more in grown if more > 0}

    def families(self) -> Iterator[Family]:
        """One gauge, a series for each counter that has grown."""
        family = GaugeMetricFamily(
            "terraflow_hints_recent",
            "Growth in the last ten minutes of what should stand still.",
            labels=["what", "tenant_id", "replica"],
        )
        for (what, tenant, replica), count in sorted(self.growth().items())[:SERIES_MAX]:
            family.add_metric([what, tenant, replica], count)
        yield family
