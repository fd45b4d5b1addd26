"""What the plane counts: capabilities beyond the bound share a label, and a scrape shows what stands when it asks."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from terraflow.app.metrics import CAPABILITIES_MAX, OTHER, Count, Gauge, Metrics
from terraflow.app.runtime import SystemClock
from terraflow.core.reasons import Governed
from terraflow.evidence.record import Attempt, Usage
from terraflow.gateway.exchange import Closed


def ended(metrics: Metrics, capability: str, calls: int = 1) -> None:
    attempt = Attempt(capability=capability, latency_ms=1_500, usage=Usage(input=7, output=3), cost_micro_usd=13)
    x: Any = SimpleNamespace(mouth="chat", started=time.monotonic(), attempts=[attempt] * calls)
    said = (Governed.PERMITTED,)
    metrics.closed(x, Closed(request_id="r", reason=said[0], status=200, reasons=said, capability=capability))


async def shown(metrics: Metrics, family: str) -> dict[str, float]:
    """A family's samples by their capability's label, or by nothing."""
    text = (await metrics.exposition()).decode()
    return {
        sample.labels.get("capability", ""): sample.value
        for found in text_string_to_metric_families(text)
        for sample in found.samples
        if sample.name == family
    }


async def test_capabilities_beyond_the_bound_share_a_label() -> None:
    metrics = Metrics(SystemClock())
    for number in range(CAPABILITIES_MAX + 10):
        ended(metrics, f"c{number}")
    for number in range(CAPABILITIES_MAX + 20):
        ended(metrics, f"c{number}")
    for family in ("terraflow_requests_total", "terraflow_provider_calls_total"):
        found = await shown(metrics, family)
        assert len(found) == CAPABILITIES_MAX + 1
        assert found["c0"] == found[f"c{CAPABILITIES_MAX - 1}"] == 2
        assert found[OTHER] == 10 + 20


async def test_every_attempt_of_a_request_counts() -> None:
    metrics = Metrics(SystemClock())
    ended(metrics, "one", calls=3)
    assert await shown(metrics, "terraflow_provider_calls_total") == {"one": 3}
    assert await shown(metrics, "terraflow_provider_call_duration_seconds_sum") == {"one": 4.5}
    assert await shown(metrics, "terraflow_cost_usd_total") == {"one": 0.000039}
    assert await shown(metrics, "terraflow_requests_total") == {"one": 1}


async def test_what_is_watched_is_read_at_each_scrape() -> None:
    metrics, state = Metrics(SystemClock()), {"waiting": 1}
    metrics.watch(
        lambda: [Gauge("terraflow_waiting", "Waiting.", state["waiting"]), Count("terraflow_done", "Done.", 5)]
    )
    assert await shown(metrics, "terraflow_waiting") == {"": 1}
    state["waiting"] = 2
    assert await shown(metrics, "terraflow_waiting") == {"": 2}
    assert await shown(metrics, "terraflow_done_total") == {"": 5}
