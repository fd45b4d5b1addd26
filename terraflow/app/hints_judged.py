"""What a hint service's own pages and numbers say of its replicas, feeds and tenants, as the doctor's findings.

1. What is judged is in force now, or of the last ten minutes where the service says so: what is mended warns nobody.
2. A replica whose engine is not heard is not well because it was heard a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from prometheus_client.samples import Sample

from terraflow.app.hints_findings import Finding, found
from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.sources import Origin
from terraflow.hints.service.overview import Overview
from terraflow.hints.service.pages import InForce
from terraflow.hints.service.recent import LOST_TO_QUOTA

STALE = timedelta(minutes=5)

_NEVER = datetime.min.replace(tzinfo=UTC)


def lost_replicas(metrics: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """The replicas, by tenant, whose event stream is not there: what they are said to hold is of before."""
    gone = [sample for sample in samples(metrics, "terraflow_hints_feed_connected") if not sample.value]
    gone += [sample for sample in samples(metrics, "terraflow_hints_feed_state") if _is_stale(sample)]
    return frozenset((sample.labels.get("tenant_id", ""), sample.labels.get("replica", "")) for sample in gone)


def judge_replicas(overview: Overview, lost: frozenset[tuple[str, str]]) -> list[Finding]:
    """Of a replica that is lost its feed's findings tell."""
    if not overview.replicas:
        return [found("FD001", "", "no replica has reported anything yet")]
    findings = []
    now = datetime.now(UTC)
    for row in overview.replicas:
        resource = f"replica/{row.tenant}/{row.replica_id}"
        heard = max(_moment(row.last_event_at), _moment(row.last_update))
        silent = now - heard
        if silent > STALE:
            since = "since the service started" if heard == _NEVER else f"for {silent.total_seconds() / 60:.0f} minutes"
            findings.append(found("FD002", resource, f"nothing was heard of it {since}"))
        elif (row.tenant, row.replica_id.partition("/dp")[0]) in lost or (row.tenant, row.replica_id) in lost:
            continue
        elif not row.stats_reported:
            findings.append(found("FD004", resource, f"{row.prefix_count} blocks, and no word of its load"))
        else:
            findings.append(found("FD003", resource, f"{row.prefix_count} blocks, pressure {row.pressure:.2f}"))
    return findings


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _NEVER


LATELY = "in the last ten minutes"
FEED_TROUBLES = {
    "faults": "faults",
    "undecodable": "batches that could not be decoded",
    "replays_failed": "gaps that no replay filled",
    "lora_unmapped": "blocks of LoRA adapters that its map does not name",
}
"""Counters of feeds that should stand still."""


def _is_stale(sample: Sample) -> bool:
    return bool(sample.value) and sample.labels.get("state") == "stale"


def judge_feeds(metrics: dict[str, Any]) -> Iterator[Finding]:
    unheard = {_feed(s) for s in samples(metrics, "terraflow_hints_feed_connected") if not s.value}
    asking = {_feed(s) for s in samples(metrics, "terraflow_hints_feed_replayable") if s.value}
    for sample in samples(metrics, "terraflow_hints_feed_connected"):
        if not sample.value:
            yield found("FD006", _feed(sample), "its engine is not connected")
    for sample in samples(metrics, "terraflow_hints_feed_state"):
        if not _is_stale(sample):
            continue
        feed, step, what = _feed(sample), "", "events were lost"
        if feed in unheard or feed.partition("/dp")[0] in unheard:
            what = "nothing is heard of its engine"
            step = "See FD006: its engine is not connected, and it heals when it is."
        elif feed in asking or feed.partition("/dp")[0] in asking:
            step = (
                "Nothing at once: it heals when the engine fills the gap, starts anew or clears its cache. If this"
                " comes again, see that replay_endpoint is the engine's own, and raise its buffer_steps."
            )
        yield found("FD007", feed, f"{what}: what its replica held counts for less", step)
    for said, sample in _growing(metrics):
        yield found("FD005", _feed(sample), said)


def _growing(metrics: dict[str, Any]) -> Iterator[tuple[str, Sample]]:
    """What went wrong of late, where the service says it; else what it has counted since its start."""
    if "terraflow_hints_recent" in metrics:
        for sample in samples(metrics, "terraflow_hints_recent"):
            if sample.value and (what := FEED_TROUBLES.get(sample.labels.get("what", ""))):
                yield f"{sample.value:.0f} {what} {LATELY}", sample
        return
    for name, what in FEED_TROUBLES.items():
        for sample in samples(metrics, f"terraflow_hints_feed_{name}"):
            if sample.name.endswith("_total") and sample.value:
                yield f"{sample.value:.0f} {what}", sample


def samples(metrics: dict[str, Any], name: str) -> Sequence[Sample]:
    return getattr(metrics.get(name), "samples", ())


def _feed(sample: Sample) -> str:
    return f"feed/{sample.labels.get('replica', '')}"


class Ruled(NamedTuple):
    """What holds for tenants: their quotas, and whose cache has a policy."""

    quotas: Mapping[str, int]
    with_policy: frozenset[str]


def ruled(in_force: InForce | None, manifests: Policies | None) -> Ruled | None:
    """What is in force as the service says it; of one that does not, what its manifests say."""
    if in_force is not None and in_force.source is not Origin.NONE:
        quotas = {row.tenant_id: row.max_index_entries for row in in_force.tenants if row.max_index_entries is not None}
        return Ruled(quotas, frozenset(row.namespace for row in in_force.policies))
    return None if manifests is None else Ruled(manifests.quotas, frozenset(manifests.cache))


def judge_tenants(overview: Overview, rules: Ruled | None, metrics: dict[str, Any]) -> list[Finding]:
    lately = "terraflow_hints_recent" in metrics
    evicted = {
        sample.labels.get("tenant_id", ""): sample.value
        for sample in samples(metrics, "terraflow_hints_recent" if lately else "inferencecache_tenant_evictions")
        if sample.labels.get("what") == LOST_TO_QUOTA
        or (sample.name.endswith("_total") and sample.labels.get("reason") == "quota")
    }
    findings = []
    for row in overview.tenants:
        resource = f"tenant/{row.tenant_id}"
        quota = None if rules is None else rules.quotas.get(row.tenant_id)
        lost = evicted.get(row.tenant_id, 0)
        of = "" if quota is None else f" of {quota}"
        if lost or (quota is not None and row.index_entries >= quota):
            said = f"{row.index_entries}{of} blocks, {lost:.0f} lost to its quota{f' {LATELY}' if lately else ''}"
            findings.append(found("CT001", resource, said))
        else:
            findings.append(found("CT002", resource, f"{row.index_entries}{of} blocks"))
        if rules is not None and row.tenant_id not in rules.with_policy:
            findings.append(found("CP001", resource, "no CachePolicy is for it"))
    return findings
