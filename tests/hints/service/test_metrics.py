"""What is counted, and who may see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from terraflow.core.reasons import Lookup, Render
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.index.index import Index
from terraflow.hints.index.said import TenantRule
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Binding, Caller
from terraflow.hints.service.metrics import LABELS_MAX, OTHER, Metrics, Sample
from terraflow.hints.service.other_metrics import feed_families, live_families
from terraflow.hints.service.streams import may_see
from terraflow.hints.words import Entry, Report
from tests.storage.makers import SetClock

CLOCK = SetClock()


def report(tenant: str, model: str, *hashes: bytes, replica: str = "r") -> Report:
    entry = Entry("", list(hashes), [1] * len(hashes), 1)
    return Report(replica=replica, model=model, tenant=tenant, scheme="s", entries=(entry,))


@pytest.fixture
def index() -> Index:
    """Two tenants, two models."""
    index = Index(entries_max=10)
    now = CLOCK.monotonic()
    index.ingest(report("acme", "llama", b"1", b"2"), now)
    index.ingest(report("acme", "llama", b"1", replica="q"), now)
    index.ingest(report("rival", "qwen", b"1"), now)
    return index


async def values(metrics: Metrics, *names: str) -> dict[tuple[str, ...], float]:
    """Series by name and label values."""
    found = await metrics.series(frozenset(names))
    return {(sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value for sample in found}


async def test_keys_are_counted_by_model_and_entries_by_replica(index: Index) -> None:
    metrics = Metrics(index)
    assert await values(metrics, "inferencecache_index_entries", "terraflow_hints_entries") == {
        ("inferencecache_index_entries", "llama"): 2,
        ("inferencecache_index_entries", "qwen"): 1,
        ("terraflow_hints_entries",): 4,
    }
    index.clear("acme", "llama", "r", CLOCK.monotonic())
    index.clear("acme", "llama", "q", CLOCK.monotonic())
    assert (await values(metrics, "inferencecache_index_entries")).get(
        ("inferencecache_index_entries", "llama"), 0
    ) == 0


async def test_lookups_are_counted_by_model_code_and_use(index: Index) -> None:
    metrics = Metrics(index)
    for seconds in (0.00005, 0.0001, 0.0003, 5.0):
        metrics.observe_lookup("llama", Lookup.PREFIX_MATCH, True, seconds)
    metrics.observe_lookup("llama", Lookup.NO_HINT, False, 0.0)
    calls = await values(metrics, "inferencecache_lookup_route_calls")
    assert calls == {
        ("inferencecache_lookup_route_calls_total", "true", "llama", "PREFIX_MATCH"): 4,
        ("inferencecache_lookup_route_calls_total", "false", "llama", "NO_HINT"): 1,
    }
    name = "inferencecache_lookup_route_latency_seconds"
    latency = await values(metrics, name)
    bounds = {
        bound: latency[f"{name}_bucket", bound, "llama"] for bound in ("0.0001", "0.00025", "0.0005", "0.1", "+Inf")
    }
    assert bounds == {"0.0001": 3, "0.00025": 3, "0.0005": 4, "0.1": 4, "+Inf": 5}
    assert latency[f"{name}_count", "llama"] == 5
    assert latency[f"{name}_sum", "llama"] == pytest.approx(5.00045)


async def test_models_beyond_the_bound_are_other(index: Index) -> None:
    metrics = Metrics(index)
    for number in range(LABELS_MAX + 7):
        metrics.observe_lookup(f"model-{number}", Lookup.NO_HINT, False, 0.0)
    calls = await values(metrics, "inferencecache_lookup_route_calls")
    assert len(calls) == LABELS_MAX + 1
    assert calls["inferencecache_lookup_route_calls_total", "false", OTHER, "NO_HINT"] == 7


async def test_evictions_are_those_of_the_index_and_those_of_quotas(index: Index) -> None:
    metrics, now = Metrics(index), CLOCK.monotonic()
    index.govern("acme", TenantRule(1800.0, False, 1))
    index.evict("rival", "qwen", "r", b"1", None, now)
    for number in range(12):
        index.ingest(report("new", "m", b"%d" % number), now)
    found = await values(metrics, "inferencecache_index_evictions", "inferencecache_tenant_evictions")
    assert ("inferencecache_index_evictions_total", "lru", "cap") in found
    assert {key[-1] for key in found if key[0] == "inferencecache_index_evictions_total"} <= {"cap", "ttl"}
    assert [key[1:] for key in found if key[0] == "inferencecache_tenant_evictions_total"] == [("quota", "acme")]
    removed = await values(metrics, "terraflow_hints_removed")
    assert removed["terraflow_hints_removed_total", "event"] == 1


async def test_the_exposition_is_prometheus_text(index: Index) -> None:
    metrics = Metrics(index)
    metrics.up = True
    page = (await metrics.exposition()).decode()
    assert "inferencecache_server_up 1.0\n" in page
    assert "# TYPE inferencecache_lookup_route_latency_seconds histogram\n" in page


@pytest.mark.parametrize(
    ("labels", "seen"),
    [
        ({}, True),
        ({"tenant_id": "acme"}, True),
        ({"tenant_id": "rival"}, False),
        ({"model": "llama"}, True),
        ({"model": "qwen"}, False),
        ({"model": OTHER}, False),
        ({"tenant_id": "acme", "model": "llama"}, True),
        ({"tenant_id": "rival", "model": "llama"}, False),
    ],
)
def test_a_series_is_for_who_may_see_its_tenant_or_model(index: Index, labels: dict[str, str], seen: bool) -> None:
    live = LiveHints(Grounds(index=index), CLOCK)
    sample = Sample("x", "gauge", labels, 1.0)
    may: Callable[[Caller], bool] = lambda caller: may_see(caller, sample, live, index.keys_by_model())  # noqa: E731
    assert may(Caller(Binding(name="a", tenants=("acme",)))) is seen
    assert may(Caller(Binding(name="all", tenants=("*",))))


async def test_answers_are_counted_with_their_cause(index: Index) -> None:
    metrics = Metrics(index)
    metrics.renders[Render.RENDER_ERROR, "missing_slot"] += 2
    metrics.pd_routes[Lookup.NO_HINT, "unknown_topology"] += 1
    assert await values(metrics, "terraflow_hints_render_calls", "terraflow_hints_pd_route_calls") == {
        ("terraflow_hints_render_calls_total", "missing_slot", "RENDER_ERROR"): 2,
        ("terraflow_hints_pd_route_calls_total", "unknown_topology", "NO_HINT"): 1,
    }


async def test_a_feed_of_two_owners_is_told_once(index: Index) -> None:
    live = LiveHints(Grounds(index=index), CLOCK)

    def feeds(*replicas: str) -> Feeds:
        endpoint = "tcp://127.0.0.1:9"
        return Feeds(
            [FeedSettings(replica=one, model="m", tenant="t", scheme="s", endpoint=endpoint) for one in replicas], live
        )

    assert list(feed_families([feeds()])) == []
    families = {family.name: family.samples for family in feed_families([feeds("a", "b"), feeds("b", "c")])}
    connected = families["terraflow_hints_feed_connected"]
    assert [(sample.labels["replica"], sample.value) for sample in connected] == [("a", 0), ("b", 0), ("c", 0)]
    assert len(families["terraflow_hints_feed_faults"]) == 3


async def test_what_is_ingested_is_counted_whoever_reports(index: Index) -> None:
    live = LiveHints(Grounds(index=index), CLOCK)
    index.govern("rival", TenantRule(1800.0, False, 0))
    for tenant, hashes in (("acme", (b"1", b"8")), ("rival", (b"9",))):
        live.ingest(report(tenant, "llama", *hashes))
    families = {family.name: family.samples for family in live_families(live)}
    told = {sample.labels["what"]: sample.value for sample in families["terraflow_hints_ingested"]}
    assert told == {"admitted": 1, "refreshed": 1, "refused": 1}
    assert [sample.value for sample in families["terraflow_hints_lookup_faults"]] == [0]
