"""What a scrape tells of the policies' folder."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from terraflow.hints.policy.folder import PolicyFolder


def policy_families(folder: PolicyFolder) -> Iterator[Family]:
    """How many places of the folder are wrong; while there are any, what was in force before still is."""
    yield GaugeMetricFamily(
        "terraflow_hints_policy_problems",
        "What keeps the policies' folder from being put in force.",
        len(folder.problems),
    )
