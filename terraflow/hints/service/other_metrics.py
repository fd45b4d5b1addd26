"""What others count, for a scrape: feeds (every counter, whether the engine is there, where streams stand), the gRPC
port's connections, what is wrong with the policies' folder, and what came of reports and lookups, whoever sent them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.folder import PolicyFolder

LABELS = ("tenant_id", "model", "replica")


def live_families(live: LiveHints) -> Iterator[Family]:
    """What the hints of this process have counted, by whichever way it came."""
    ingested = CounterMetricFamily("terraflow_hints_ingested", "Entries by what ingest did with them.", labels=["what"])
    for what, count in (("admitted", live.admitted), ("refreshed", live.refreshed), ("refused", live.refused)):
        ingested.add_metric([what], count)
    yield ingested
    yield CounterMetricFamily(
        "terraflow_hints_lookup_faults", "Lookups that failed and were answered without a hint.", live.faults
    )


def feed_families(running: Iterable[Feeds]) -> Iterator[Family]:
    """The families of all configured feeds, which bound their labels; of two of one name the first is told."""
    counters: dict[str, CounterMetricFamily] = {}
    there = GaugeMetricFamily("terraflow_hints_feed_connected", "1 while the engine is connected.", labels=LABELS)
    stands = GaugeMetricFamily(
        "terraflow_hints_feed_state", "1 for the state that a replica's stream is in.", labels=(*LABELS, "state")
    )
    asks = GaugeMetricFamily(
        "terraflow_hints_feed_replayable", "1 if the feed has a replay endpoint to ask.", labels=LABELS
    )
    told: set[str] = set()
    for feeds in running:
        numbers, connected = feeds.numbers(), feeds.connected()
        for settings in feeds.settings:
            if settings.name in told:
                continue
            told.add(settings.name)
            labels = (settings.tenant, settings.model, settings.replica)
            for name, count in numbers[settings.name].items():
                if name not in counters:
                    counters[name] = CounterMetricFamily(
                        f"terraflow_hints_feed_{name}",
                        f"Of engines' event streams: {name.replace('_', ' ')}.",
                        labels=LABELS,
                    )
                counters[name].add_metric(labels, count)
            asks.add_metric(labels, float(settings.replay_endpoint is not None))
            there.add_metric(labels, float(connected[settings.name]))
            feed = feeds.feed(settings.name)
            for replica, state in (feed.states() if feed is not None else {}).items():
                stands.add_metric((settings.tenant, settings.model, replica, str(state)), 1.0)
    if told:
        yield from (*counters.values(), there, asks, stands)


def connection_families(tally: Counter[str]) -> Iterator[Family]:
    """What happened on the gRPC port since the start; the server has a fixed set of words for it."""
    family = CounterMetricFamily(
        "terraflow_hints_connections", "What happened on the gRPC port, by the server's words.", labels=["event"]
    )
    for event, count in sorted(tally.items()):
        family.add_metric([event], count)
    yield family


def policy_families(folder: PolicyFolder) -> Iterator[Family]:
    """How many places of the folder are wrong; while there are any, what was in force before still is."""
    yield GaugeMetricFamily(
        "terraflow_hints_policy_problems",
        "What keeps the policies' folder from being put in force.",
        len(folder.problems),
    )
