"""The state of a running plane as a scrape of its metrics shows it, read on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from terraflow import __version__
from terraflow.app.checkpoints import Checkpoints
from terraflow.app.metrics import CAPABILITIES_MAX, Count, Gauge
from terraflow.app.peers import Places
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability
from terraflow.core.types import MICRO
from terraflow.gateway.plane import Plane
from terraflow.storage.sqlite.committer import CommitCounts

_FIRST = f"of the first {CAPABILITIES_MAX} of the bundle."


def read_state(
    plane: Plane, unready: Callable[[], str | None], checkpoints: Checkpoints, commits: CommitCounts
) -> list[Gauge]:
    """Every gauge, and the store's counts."""
    return [
        Gauge("terraflow_info", "The version that runs.", 1, (("version", __version__),)),
        Gauge("terraflow_ready", "1 while requests are taken, as /readyz says.", unready() is None),
        *_requests(plane),
        *_evidence(checkpoints),
        *_store(commits),
        *_bundle(plane),
    ]


def read_connections(places: Places) -> list[Gauge]:
    """Those of callers, on the port that the plane listens on."""
    return [
        Gauge("terraflow_connections_open", "Connections of callers that are open.", places.open),
        Count("terraflow_connections_refused", "Connections closed unread, for want of a place.", places.refused),
    ]


def _requests(plane: Plane) -> Iterator[Gauge]:
    door = plane.admission
    yield Gauge("terraflow_requests_open", "Governed requests without a recorded end.", len(plane.running))
    said = "Requests whose key is known and whose turn to begin has not come."
    yield Gauge("terraflow_doorstep_waiting", said, plane.doorstep.waiting)
    yield Gauge("terraflow_admission_running", "Requests that have a place.", door.running)
    yield Gauge("terraflow_admission_waiting", "Requests that wait for a place.", door.queued)
    yield Gauge("terraflow_admission_limit", "How many may have a place now.", door.limit)
    yield Gauge("terraflow_admission_limit_max", "How many may have a place at the most.", door.ceiling)


def _evidence(checkpoints: Checkpoints) -> Iterator[Gauge]:
    said = "Seconds since every record that there was had been signed."
    yield Gauge("terraflow_evidence_lag_seconds", said, checkpoints.lag_s())
    said = "Tenants' logs that are damaged and not signed any more."
    yield Gauge("terraflow_evidence_damaged_logs", said, checkpoints.damaged)


def _store(commits: CommitCounts) -> Iterator[Gauge]:
    yield Count("terraflow_store_commits", "Transactions that were made durable.", commits.transactions)
    yield Count("terraflow_store_commits_failed", "Transactions that were not.", commits.failed)
    yield Count("terraflow_store_verbs", "Verbs of the store in those that were.", commits.verbs)
    yield Count("terraflow_store_commit_seconds", "Time that commits waited for the disk.", commits.seconds)


def _bundle(plane: Plane) -> Iterator[Gauge]:
    bundle = plane.bundles.active()
    if type(bundle) is not Bundle:
        return
    yield Gauge("terraflow_bundle_sequence", "The bundle in force.", bundle.sequence)
    said = "When it expires, in seconds since the epoch."
    yield Gauge("terraflow_bundle_expires_timestamp_seconds", said, bundle.expires_at / MICRO)
    for capability in islice(bundle.capabilities.values(), CAPABILITIES_MAX):
        yield from _capability(plane, capability)


def _capability(plane: Plane, capability: Capability) -> Iterator[Gauge]:
    named = (("capability", capability.id),)
    healthy = plane.health.healthy(capability.id, plane.clock.monotonic())
    slots = plane.capacity.slots(capability.id, capability.in_flight_max)
    said = "0 while a capability rests after its provider's faults, else 1"
    yield Gauge("terraflow_capability_healthy", f"{said}; {_FIRST}", healthy, named)
    rests = plane.health.rests(capability.id)
    yield Count("terraflow_capability_rests", f"How often it has begun to rest; {_FIRST}", rests, named)
    yield Gauge("terraflow_capability_calls", f"Calls of a capability in flight; {_FIRST}", slots.taken, named)
    yield Gauge("terraflow_capability_calls_waiting", f"Calls that wait for one to end; {_FIRST}", slots.waiting, named)
    yield Gauge("terraflow_capability_calls_limit", f"How many may be in flight now; {_FIRST}", slots.limit, named)
    yield Gauge("terraflow_capability_calls_limit_max", f"The same at the most; {_FIRST}", slots.ceiling, named)
