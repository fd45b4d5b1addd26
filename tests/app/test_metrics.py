"""What the plane counts: capabilities beyond the bound share a label, and a scrape shows what stands when it asks."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from terraflow.app.metrics import (
    BUCKETS_S,
    CAPABILITIES_MAX,
    OTHER,
    REFUSALS,
    TURNED_AWAY,
    Count,
    Gauge,
    Metrics,
)
from terraflow.app.runtime import SystemClock
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import CODES, PLANNED, Governed, ModelApi, reason
from terraflow.evidence.record import Attempt, Usage
from terraflow.gateway.exchange import Closed
from tools.occurrences import OCCURRENCES


def ended(
    metrics: Metrics, capability: str, calls: int = 1, said: Governed = Governed.PERMITTED, flow: object = None
) -> None:
    attempt = Attempt(capability=capability, latency_ms=1_500, usage=Usage(input=7, output=3), cost_micro_usd=13)
    x: Any = SimpleNamespace(mouth="chat", started=time.monotonic(), attempts=[attempt] * calls, flow=flow)
    closed = Closed(request_id="r", reason=said, status=200, reasons=(said,), capability=capability)
    metrics.closed(x, closed)


async def shown(metrics: Metrics, family: str, label: str = "capability") -> dict[str, float]:
    """A family's samples by their label, or by nothing."""
    text = (await metrics.exposition()).decode()
    return {
        sample.labels.get(label, ""): sample.value
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


async def test_what_refuses_is_there_before_it_happens() -> None:
    metrics = Metrics(SystemClock())
    refused = await shown(metrics, "terraflow_requests_refused_total", "reason")
    assert set(refused.values()) == {0}
    assert {"QUEUE_SHED", "TENANT_QUEUE_LIMIT", "INTERNAL_ERROR", "TIER_NOT_AVAILABLE"} <= refused.keys()
    assert not {"PERMITTED", "CACHE_HIT", "IDEMPOTENCY_REPLAY", "REVIEW_PENDING"} & refused.keys()
    away = await shown(metrics, "terraflow_requests_turned_away_total", "reason")
    assert set(away.values()) == {0}
    assert {"QUEUE_SHED", "INTERNAL_ERROR", "APP_UNAUTHENTICATED"} <= away.keys()
    built = {code for code in CODES if isinstance(code, ModelApi) and reason(code).since != PLANNED}
    assert built <= away.keys()


async def test_every_code_that_occurs_is_there_before_it_happens() -> None:
    governed = {"chat", "messages", "invocations", "item"}
    for code, places in OCCURRENCES.items():
        if places - governed:
            assert code in TURNED_AWAY, code
        elif next(row.status or 0 for row in map(reason, CODES) if row.code == code) >= 400:
            assert code in REFUSALS or code in TURNED_AWAY or code == Governed.IDEMPOTENCY_REPLAY, code


async def test_a_refusal_is_counted_and_an_answer_is_none() -> None:
    metrics = Metrics(SystemClock())
    ended(metrics, "one")
    ended(metrics, "one", said=Governed.INTERNAL_ERROR)
    metrics.turned_away(Refuse(reason=ModelApi.INVALID_REQUEST), None, None)
    refused = await shown(metrics, "terraflow_requests_refused_total", "reason")
    assert {code: count for code, count in refused.items() if count} == {"INTERNAL_ERROR": 1}
    away = await shown(metrics, "terraflow_requests_turned_away_total", "reason")
    assert {code: count for code, count in away.items() if count} == {"INVALID_REQUEST": 1}


async def test_calls_are_sorted_by_how_long_they_took() -> None:
    metrics = Metrics(SystemClock())
    ended(metrics, "one", calls=2)
    found = await shown(metrics, "terraflow_provider_call_duration_seconds_bucket", "le")
    assert found == {str(bound): 2 * (bound >= 1.5) for bound in BUCKETS_S} | {"+Inf": 2}


async def test_of_streams_in_which_something_was_written_the_time_to_it_is_counted() -> None:
    metrics = Metrics(SystemClock())
    ended(metrics, "one")
    ended(metrics, "one", flow=SimpleNamespace(capability="one", first_token_s=None))
    assert await shown(metrics, "terraflow_provider_time_to_first_token_seconds_count") == {"one": 0}
    ended(metrics, "one", flow=SimpleNamespace(capability="one", first_token_s=0.2))
    assert await shown(metrics, "terraflow_provider_time_to_first_token_seconds_sum") == {"one": 0.2}
    found = await shown(metrics, "terraflow_provider_time_to_first_token_seconds_bucket", "le")
    assert found == {str(bound): bound >= 0.2 for bound in BUCKETS_S} | {"+Inf": 1}


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
