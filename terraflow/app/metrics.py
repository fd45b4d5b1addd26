"""What the plane counts, as Prometheus reads it.

1. A request adds to plain numbers; series are made of them when somebody scrapes, their text in a thread.
2. What else is shown (gauges, the store's counts) is read on the loop, at the scrape.
3. What refuses or fails is there from the start, at zero: of a series that begins with its first event Prometheus sees
   no increase, and an alert on it would miss that event.
4. Labels are bounded: mouths, reasons, statuses and results are closed sets; of capabilities `CAPABILITIES_MAX` have
   their own, and the others are `other`. No tenant, application, workload or request is named.
5. Costs are summed in micro-dollars and shown in dollars.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import CODES, PLANNED, Governed, ModelApi, reason
from terraflow.core.types import MICRO
from terraflow.evidence.record import Attempt, Usage
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.ports.runtime import Clock
from terraflow.ports.store import KeyHolder

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_BOUNDS = (*map(str, BUCKETS_S), "+Inf")
CAPABILITIES_MAX = 256
OTHER = "other"
ANSWERED = "answered"
_KINDS = Usage.__struct_fields__
_BUILT = [code for code in CODES if isinstance(code, Governed | ModelApi) and reason(code).since != PLANNED]
_NO_REFUSALS = (Governed.APP_UNAUTHENTICATED, Governed.IDEMPOTENCY_REPLAY)
REFUSALS = tuple(
    code
    for code in _BUILT
    if isinstance(code, Governed) and (reason(code).status or 0) >= 400 and code not in _NO_REFUSALS
)
"""The codes that end a governed request without an answer."""
TURNED_AWAY = (
    *(code for code in _BUILT if isinstance(code, ModelApi)),
    Governed.APP_UNAUTHENTICATED,
    Governed.BUNDLE_EXPIRED,
    Governed.BUNDLE_INVALID,
    Governed.DEADLINE_EXPIRED,
    Governed.EVIDENCE_UNAVAILABLE,
    Governed.INTERNAL_ERROR,
    Governed.QUEUE_SHED,
    Governed.UNKNOWN_WORKLOAD,
)
"""The codes that end a request before it is governed, or one that is none for a model."""


class _Durations:
    """How often something took how long."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Once more."""
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds

    def show(self, family: HistogramMetricFamily, label: str) -> None:
        """Its sample in a family of one label."""
        family.add_metric([label], list(zip(_BOUNDS, accumulate(self.buckets), strict=True)), self.seconds)


class _Calls:
    """The calls of one capability."""

    __slots__ = ("cost", "durations", "first_tokens", "results", "tokens")

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.durations = _Durations()
        self.first_tokens = _Durations()
        self.tokens: Counter[str] = Counter()
        self.cost = 0


class Gauge(NamedTuple):
    """A number as it stands at a scrape; `labels` name it among those of its family."""

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Count(Gauge):
    """The same of a number that only grows; its name ends in `_total` when it is shown."""


class Metrics(Collector):
    """A `Telemetry` that counts; `watch` says what else a scrape shows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, str, int, str | None]] = Counter()
        self._refused: dict[str, int] = dict.fromkeys(REFUSALS, 0)
        self._turned_away: Counter[str] = Counter(dict.fromkeys(TURNED_AWAY, 0))
        self._durations: dict[str, _Durations] = {}
        self._calls: dict[str, _Calls] = {}
        self._savings = 0
        self._watched: list[Callable[[], list[Gauge]]] = []
        self._shown: list[Family] = []
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def closed(self, x: Exchange, closed: Closed) -> None:
        """Count a governed request, and the calls that were made for it."""
        capability = closed.capability
        if capability is not None and capability not in self._calls:
            capability = self._known(capability)
        self._requests[x.mouth, closed.reason, closed.status, capability] += 1
        if closed.reason in self._refused:
            self._refused[closed.reason] += 1
        durations = self._durations.get(x.mouth)
        if durations is None:
            durations = self._durations[x.mouth] = _Durations()
        durations.add(self._clock.monotonic() - x.started)
        for attempt in x.attempts:
            self._count(attempt)
        flow = x.flow
        if flow is not None and flow.first_token_s is not None:
            self._calls_of(flow.capability).first_tokens.add(flow.first_token_s)
        if closed.savings:
            self._savings += closed.savings

    def turned_away(self, refuse: Refuse, request_id: str | None, caller: KeyHolder | None) -> None:
        """Count a request that was never governed."""
        self._turned_away[refuse.reason] += 1

    def _count(self, attempt: Attempt) -> None:
        calls = self._calls_of(attempt.capability)
        calls.results[attempt.failure or ANSWERED] += 1
        calls.durations.add(attempt.latency_ms / 1000)
        calls.cost += attempt.cost_micro_usd
        usage = attempt.usage
        if usage is not None:
            for kind in _KINDS:
                tokens = getattr(usage, kind)
                if tokens:
                    calls.tokens[kind] += tokens

    def _calls_of(self, capability: str) -> _Calls:
        calls = self._calls.get(capability)
        return self._calls[self._known(capability)] if calls is None else calls

    def _known(self, capability: str) -> str:
        """The label of a capability that has none yet."""
        label = capability if len(self._calls) < CAPABILITIES_MAX else OTHER
        self._calls.setdefault(label, _Calls())
        return label

    def watch(self, read: Callable[[], list[Gauge]]) -> None:
        """Show what `read` returns, too; it is called on the loop, at a scrape."""
        self._watched.append(read)

    async def exposition(self) -> bytes:
        """The text of a scrape, as of now."""
        self._shown = [*self._request_families(), *self._call_families(), *self._watched_families()]
        return await asyncio.to_thread(generate_latest, self.registry)

    def collect(self) -> Iterator[Family]:
        """Every family as of the last scrape."""
        yield from self._shown

    def _request_families(self) -> Iterator[Family]:
        requests = CounterMetricFamily(
            "terraflow_requests",
            "Governed requests that ended, by mouth, reason code, status and the capability that answered.",
            labels=["mouth", "reason", "status", "capability"],
        )
        for (mouth, code, status, capability), count in self._requests.items():
            requests.add_metric([mouth, code, str(status), capability or ""], count)
        yield requests
        refused = CounterMetricFamily(
            "terraflow_requests_refused",
            "Governed requests that ended without an answer, by reason code.",
            labels=["reason"],
        )
        for code, count in self._refused.items():
            refused.add_metric([code], count)
        yield refused
        turned_away = CounterMetricFamily(
            "terraflow_requests_turned_away",
            "Requests that were refused before they were governed, by code.",
            labels=["reason"],
        )
        for code, count in self._turned_away.items():
            turned_away.add_metric([code], count)
        yield turned_away
        durations = HistogramMetricFamily(
            "terraflow_request_duration_seconds", "From a request's body to its recorded end.", labels=["mouth"]
        )
        for mouth, row in self._durations.items():
            row.show(durations, mouth)
        yield durations
        yield CounterMetricFamily(
            "terraflow_savings_usd", "What answers from the response cache would have cost.", self._savings / MICRO
        )

    def _call_families(self) -> Iterator[Family]:
        calls = CounterMetricFamily(
            "terraflow_provider_calls",
            "Calls of providers, by capability and result: answered, broken_off, or the failure.",
            labels=["capability", "result"],
        )
        durations = HistogramMetricFamily(
            "terraflow_provider_call_duration_seconds", "How long calls of providers took.", labels=["capability"]
        )
        first_tokens = HistogramMetricFamily(
            "terraflow_provider_time_to_first_token_seconds",
            "From a stream's call to the first that the model wrote.",
            labels=["capability"],
        )
        tokens = CounterMetricFamily(
            "terraflow_tokens", "Tokens used, by capability and kind.", labels=["capability", "kind"]
        )
        cost = CounterMetricFamily("terraflow_cost_usd", "Dollars posted, by capability.", labels=["capability"])
        for capability, row in self._calls.items():
            for result, count in row.results.items():
                calls.add_metric([capability, result], count)
            row.durations.show(durations, capability)
            row.first_tokens.show(first_tokens, capability)
            for kind, used in row.tokens.items():
                tokens.add_metric([capability, kind], used)
            cost.add_metric([capability], row.cost / MICRO)
        yield from (calls, durations, first_tokens, tokens, cost)

    def _watched_families(self) -> Iterator[Family]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for gauge in (gauge for read in self._watched for gauge in read()):
            family = families.get(gauge.name)
            if family is None:
                kind = CounterMetricFamily if isinstance(gauge, Count) else GaugeMetricFamily
                family = families[gauge.name] = kind(gauge.name, gauge.help, labels=[name for name, _ in gauge.labels])
            family.add_metric([value for _, value in gauge.labels], gauge.value)
        yield from families.values()
