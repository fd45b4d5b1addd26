"""What the service counts, under the reference's names where it has them, in a registry of its own.

1. The hot path adds to plain numbers; series are made of them when somebody scrapes, in a thread.
2. The index's counts are read for a scrape, on the loop's thread; they are never kept twice.
3. What strangers name is bounded: `LABELS_MAX` models and as many tenants, then `other`. Models that are asked for
   take no place from those that are held.
Source of the first six names, their labels and the buckets: the metrics reference of cachebox-project/inference-cache.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from terraflow.core.reasons import Lookup, Render
from terraflow.hints.index.index import Index
from terraflow.hints.index.said import Cause
from terraflow.hints.service.spaced import Spaced

LABELS_MAX = 512
OTHER = "other"
BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
_BOUNDS = (*map(str, BUCKETS_S), "+Inf")

OWN_REMOVALS = (Cause.CAP, Cause.TTL)
"""What the reference counts as evictions of the index; quotas are the tenants', events and clears the producers'."""

Collect = Callable[[], Iterable[Family]]


class _Lookups:
    """The lookups of one model."""

    __slots__ = ("buckets", "calls", "seconds")

    def __init__(self) -> None:
        self.calls: defaultdict[tuple[Lookup, bool], int] = defaultdict(int)
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0


class _Labels:
    """Label values as far as there is room, then `other`."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """The name itself, or `other` once `LABELS_MAX` different ones were seen."""
        if name in self._known:
            return name
        if len(self._known) < LABELS_MAX:
            self._known.add(name)
            return name
        return OTHER


class Sample(NamedTuple):
    """One series as StreamMetrics tells it."""

    name: str
    type: str
    labels: Mapping[str, str]
    value: float


class _Indexed(NamedTuple):
    """The index's counts at one instant."""

    keys: Mapping[str, int]
    """By model."""
    entries: int
    removals: Mapping[tuple[str, str], int]
    tenant_removals: Mapping[tuple[str, str], int]


class Metrics(Collector):
    """Every number of the service, and where further ones come from."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._indexed = _Indexed({}, 0, {}, {})
        self.registry = CollectorRegistry(auto_describe=False)
        self.up = False
        self.dropped: Counter[str] = Counter()
        """Entries and reports left out on ingest, by cause."""
        self.refused: Counter[str] = Counter()
        """Calls refused, by cause."""
        self.pd_routes: Counter[tuple[Lookup, str]] = Counter()
        self.renders: Counter[tuple[Render, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.stream_drops: Counter[str] = Counter()
        self.streams_open: Counter[str] = Counter()
        self._held_models = _Labels()
        self._tenants = _Labels()
        self._lookups: dict[str, _Lookups] = {}
        self._more: list[Collect] = []
        self._read: list[Family] = []
        self._exposition = Spaced(self._expose)
        self._families = Spaced(self._collected)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def observe_lookup(self, model: str, reason: Lookup, used: bool, seconds: float) -> None:
        """Count one LookupRoute."""
        row = self._lookups.get(model)
        if row is None:
            label = model if len(self._lookups) < LABELS_MAX else OTHER
            row = self._lookups.setdefault(label, _Lookups())
        row.calls[reason, used] += 1
        row.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        row.seconds += seconds

    def also(self, collect: Collect) -> None:
        """Have a scrape show what `collect` returns, too; it is called as the index is read."""
        self._more.append(collect)

    async def exposition(self) -> bytes:
        """The text of a scrape, as of now."""
        return await self._exposition.made()

    async def _expose(self) -> bytes:
        self.read_index()
        return await asyncio.to_thread(generate_latest, self.registry)

    async def series(self, names: frozenset[str]) -> list[Sample]:
        """Every series whose own name, or whose family's, is among `names`; all when there are none."""
        return await asyncio.to_thread(_samples, await self._families.made(), names)

    async def _collected(self) -> list[Family]:
        self.read_index()
        return await asyncio.to_thread(lambda: list(self.registry.collect()))

    def read_index(self) -> None:
        """Take the index's counts for what `collect` tells next; on the loop's thread, which alone may read it."""
        index = self._index
        self._indexed = _Indexed(
            index.keys_by_model(),
            index.entries(),
            dict(index.removals),
            dict(index.tenant_removals),
        )
        self._read = [family for collect in self._more for family in collect()]

    def collect(self) -> Iterator[Family]:
        """Every family; the index's as of the last `read_index`."""
        yield GaugeMetricFamily("inferencecache_server_up", "1 while the service serves.", float(self.up))
        yield from self._index_families()
        yield from self._lookup_families()
        yield from self._own_families()
        yield from self._read

    def _index_families(self) -> Iterator[Family]:
        entries = GaugeMetricFamily(
            "inferencecache_index_entries", "Distinct keys that the index holds, by model.", labels=["model"]
        )
        for model, keys in _summed(self._indexed.keys, self._held_models):
            entries.add_metric([model], keys)
        yield entries
        evictions = CounterMetricFamily(
            "inferencecache_index_evictions",
            "Entries that the index removed by itself.",
            labels=["algorithm", "reason"],
        )
        removed: Counter[str] = Counter()
        for (algorithm, reason), count in sorted(self._indexed.removals.items()):
            removed[reason] += count
            if reason in OWN_REMOVALS:
                evictions.add_metric([algorithm, reason], count)
        yield evictions
        yield _counted("removed", "Entries that left the index, by cause.", "cause", removed)
        tenants = CounterMetricFamily(
            "inferencecache_tenant_evictions", "Entries that a tenant lost, by cause.", labels=["tenant_id", "reason"]
        )
        summed: Counter[tuple[str, str]] = Counter()
        for (tenant, reason), count in sorted(self._indexed.tenant_removals.items()):
            if reason == Cause.QUOTA:
                summed[self._tenants.of(tenant), reason] += count
        for (tenant, reason), count in summed.items():
            tenants.add_metric([tenant, reason], count)
        yield tenants
        yield GaugeMetricFamily(
            "terraflow_hints_entries", "Entries (replica × key) of the index.", self._indexed.entries
        )

    def _lookup_families(self) -> Iterator[Family]:
        calls = CounterMetricFamily(
            "inferencecache_lookup_route_calls",
            "LookupRoute calls by what was answered.",
            labels=["model", "reason_code", "hint_used"],
        )
        latency = HistogramMetricFamily(
            "inferencecache_lookup_route_latency_seconds",
            "LookupRoute from the parsed request to the answer.",
            labels=["model"],
        )
        for model, row in list(self._lookups.items()):
            for (reason, used), count in list(row.calls.items()):
                calls.add_metric([model, str(reason), "true" if used else "false"], count)
            latency.add_metric([model], list(zip(_BOUNDS, accumulate(row.buckets), strict=True)), row.seconds)
        yield calls
        yield latency

    def _own_families(self) -> Iterator[Family]:
        yield _counted("dropped", "Reports and entries that broke a rule of the wire, by which.", "cause", self.dropped)
        yield _counted("refused", "Calls and reports refused, by cause.", "cause", self.refused)
        yield _counted("events", "Events that producers published, by type.", "type", self.events)
        yield _counted("stream_dropped", "Messages that slow readers of streams lost.", "stream", self.stream_drops)
        for name, call, counts in (
            ("render_calls", "RenderTemplate", self.renders),
            ("pd_route_calls", "LookupPDRoute", self.pd_routes),
        ):
            answered = CounterMetricFamily(
                f"terraflow_hints_{name}", f"{call} calls by answer and cause.", labels=["reason_code", "cause"]
            )
            for (reason, cause), count in list(counts.items()):
                answered.add_metric([str(reason), cause], count)
            yield answered
        open_streams = GaugeMetricFamily("terraflow_hints_streams_open", "Open streams by kind.", labels=["stream"])
        for stream, count in list(self.streams_open.items()):
            open_streams.add_metric([stream], count)
        yield open_streams


def _samples(families: Iterable[Family], names: frozenset[str]) -> list[Sample]:
    return [
        Sample(sample.name, family.type, sample.labels, sample.value)
        for family in families
        for sample in family.samples
        if not names or family.name in names or sample.name in names
    ]


def _summed(counts: Mapping[str, int], labels: _Labels) -> Iterable[tuple[str, int]]:
    summed: Counter[str] = Counter()
    for name in sorted(counts):
        summed[labels.of(name)] += counts[name]
    return summed.items()


def _counted(name: str, documentation: str, label: str, counts: Counter[Any]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"terraflow_hints_{name}", documentation, labels=[label])
    for value, count in list(counts.items()):
        family.add_metric([str(value)], count)
    return family
