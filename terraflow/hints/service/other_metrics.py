"""What others count, for a scrape: feeds (every counter, whether the engine is there, where streams stand), the gRPC
port's connections, and what is wrong with the policies' folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.policy.folder import PolicyFolder

LABELS = ("tenant_id", "model", "replica")


def feed_families(settings: Sequence[FeedSettings], feeds: Feeds) -> Iterator[Family]:
    """The families of all configured feeds, which bound their labels."""
    numbers, connected = feeds.numbers(), feeds.connected()
    counters: dict[str, CounterMetricFamily] = {}
    for feed in settings:
        labels = (feed.tenant, feed.model, feed.replica)
        for name, count in numbers[feed.name].items():
            family = counters.get(name)
            if family is None:
                words = name.replace("_", " ")
                family = counters[name] = CounterMetricFamily(
                    f"terraflow_hints_feed_{name}", f"Of engines' event streams: {words}.", labels=LABELS
                )
            family.add_metric(labels, count)
    yield from counters.values()
    there = GaugeMetricFamily("terraflow_hints_feed_connected", "1 while the engine is connected.", labels=LABELS)
    for feed in settings:
        there.add_metric((feed.tenant, feed.model, feed.replica), float(connected[feed.name]))
    yield there
    stands = GaugeMetricFamily(
        "terraflow_hints_feed_state", "1 for the state that a replica's stream is in.", labels=(*LABELS, "state")
    )
    for feed in settings:
        running = feeds.feed(feed.name)
        for replica, state in (running.states() if running is not None else {}).items():
            stands.add_metric((feed.tenant, feed.model, replica, str(state)), 1.0)
    yield stands


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
