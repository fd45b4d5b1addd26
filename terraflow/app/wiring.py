"""The only place that names concrete classes: settings become a running plane's parts.

`wrap` is how a test stands between a port and its real implementation; a production plane is built without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.app.background import again, beside
from terraflow.app.bundles import ActiveBundle
from terraflow.app.checkpoints import Checkpoints
from terraflow.app.fleets import Fleets, open_fleets
from terraflow.app.gauges import read_state
from terraflow.app.log_key import open_log_key
from terraflow.app.metrics import Metrics
from terraflow.app.opening import bundle_keys, naming, open_data_folder, open_marks, read_metrics_token
from terraflow.app.peers import within
from terraflow.app.providers import OpenProviders
from terraflow.app.runtime import RandomIds, SystemClock
from terraflow.app.settings import Settings
from terraflow.app.telemetry import AccessLog, EachOf
from terraflow.classify.scan import Scanner
from terraflow.contracts.bundle import Bundle
from terraflow.evidence.highwater import check_marks
from terraflow.evidence.proof import prove
from terraflow.gateway.adaptive_limit import LimitRule, PlaneLimit
from terraflow.gateway.admission import Admission
from terraflow.gateway.admission_queue import AdmissionRule
from terraflow.gateway.batches.desk import Batches
from terraflow.gateway.batches.runner import BatchLimits, Runner
from terraflow.gateway.capacity import Capacity
from terraflow.gateway.doorstep import Doorstep, StepRule
from terraflow.gateway.health import Health, HealthRule
from terraflow.gateway.heartbeats import Heartbeats
from terraflow.gateway.http.arrived import Edge
from terraflow.gateway.http.scrape import MetricsDoor
from terraflow.gateway.http.service import Service
from terraflow.gateway.plane import Limits, Plane, ProviderSet, Telemetry
from terraflow.gateway.rate import Rate
from terraflow.gateway.recover import RecoveryLoop, recover
from terraflow.gateway.running import Running
from terraflow.ports.batches import BatchStore
from terraflow.ports.ledger import Ledger
from terraflow.ports.runtime import Clock, Ids
from terraflow.ports.store import Store
from terraflow.ports.upstream import Provider
from terraflow.storage.sqlite.folder import DATABASE

TIDY_EVERY_S = 60.0
"""How often expired answers are erased, and what has served its time is removed."""


class Wrap(msgspec.Struct, frozen=True, kw_only=True):
    """What a test puts around a port; each function gets the real one."""

    store: Callable[[Store], Store] = lambda store: store
    batches: Callable[[BatchStore], BatchStore] = lambda batches: batches
    provider: Callable[[str, Provider], Provider] = lambda _, provider: provider
    providers: Callable[[ProviderSet], ProviderSet] = lambda providers: providers
    clock: Callable[[Clock], Clock] = lambda clock: clock
    ids: Callable[[Ids], Ids] = lambda ids: ids
    scanner: Callable[[Scanner], Scanner] = lambda scanner: scanner


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A plane that is ready to serve, and what must be stopped with it."""

    plane: Plane
    service: Service
    store: Store
    bundles: ActiveBundle
    providers: OpenProviders
    fleets: Fleets
    batches: Runner
    metrics: Metrics
    closing: contextlib.AsyncExitStack

    async def stop(self) -> None:
        """End everything but the requests, which are the server's to finish: what was begun last first, and all of it
        whatever fails on the way."""
        await self.closing.aclose()


class LedgerProofs:
    """Inclusion proofs for the evidence read, from the published tiles: a few point reads."""

    def __init__(self, ledger: Ledger, key: Ed25519PublicKey) -> None:
        self._ledger = ledger
        self._key = key

    async def prove(self, tenant: str, index: int) -> bytes | None:
        """See `gateway.http.arrived.EvidenceReader`."""
        return await asyncio.to_thread(prove, self._ledger, tenant, index, self._key)


async def start(settings: Settings, *, access_log: TextIO | None = None, wrap: Wrap | None = None) -> Parts:
    """Build the plane, bring what a crash left to its end, and start what runs beside the requests. What fails lets go
    of everything that was opened before it.

    Raises CannotStart, FolderInUse, KeyUnusable, MarkInvalid, RolledBack.
    """
    wrap = wrap or Wrap()
    clock = wrap.clock(SystemClock())
    async with contextlib.AsyncExitStack() as opened:
        telemetry = AccessLog(clock, access_log)
        opened.callback(telemetry.flush)
        sqlite = open_data_folder(settings, clock)
        store = wrap.store(sqlite)
        opened.push_async_callback(store.close)
        log_key = open_log_key(settings, sqlite.ledger)
        marks = open_marks(settings)
        with naming("high_water_dir", marks):
            check_marks(marks, sqlite.ledger, log_key.public_key())
        running = Running()
        with naming("data_dir", Path(settings.data_dir) / DATABASE):
            await recover(store, clock, running)
        fleets = await open_fleets(settings, clock)
        opened.push_async_callback(fleets.close)
        providers = OpenProviders(settings, clock, wrap.provider, fleets.advise)
        opened.push_async_callback(providers.close)

        async def follow(bundle: Bundle) -> None:
            await providers.follow(bundle)
            await fleets.follow(bundle)

        bundles = ActiveBundle(store, bundle_keys(settings), clock, follow)
        await bundles.refresh()
        bundles.tell()
        metrics = Metrics(clock)
        door = _metrics_door(settings, metrics)
        told = telemetry if door is None or door.token_digest is None else EachOf(telemetry, metrics)
        recovery = RecoveryLoop(store, clock, running)
        plane = _plane(settings, wrap, clock, store, bundles, providers, running, recovery, told)
        batches = wrap.batches(sqlite.batches)
        limits = _batch_limits(settings)
        runner = Runner(plane, batches, limits)
        with naming("data_dir", Path(settings.data_dir) / DATABASE):
            await runner.resume()
        checkpoints = Checkpoints(sqlite.ledger, log_key, marks, settings.checkpoint_interval_ms / 1000)
        checkpoints.start()
        opened.push_async_callback(asyncio.to_thread, checkpoints.stop)
        desk = Batches(plane, batches, limits, runner)
        edge = Edge(plane=plane, desk=desk, evidence=LedgerProofs(sqlite.ledger, log_key.public_key()))
        trusted = within(settings.trusted_proxies) if settings.trusted_proxies else lambda _: True
        service = Service(edge, trusted, checkpoints.trouble, metrics=door)
        metrics.watch(lambda: read_state(plane, service.unready, checkpoints, sqlite.commits))
        beside(opened, bundles.keep_fresh())
        beside(opened, recovery.keep_trying())
        beside(opened, again(clock, TIDY_EVERY_S, store.erase))
        beside(opened, again(clock, TIDY_EVERY_S, store.prune))
        beside(opened, plane.heartbeats.keep_beating())
        beside(opened, runner.keep_running())
        return Parts(
            plane=plane,
            service=service,
            store=store,
            bundles=bundles,
            providers=providers,
            fleets=fleets,
            batches=runner,
            metrics=metrics,
            closing=opened.pop_all(),
        )


def _plane(
    settings: Settings,
    wrap: Wrap,
    clock: Clock,
    store: Store,
    bundles: ActiveBundle,
    providers: OpenProviders,
    running: Running,
    recovery: RecoveryLoop,
    telemetry: Telemetry,
) -> Plane:
    admission = Admission(
        AdmissionRule(
            running_max=settings.running_max,
            waiting_max=settings.waiting_max,
            tenant_max=settings.tenant_max,
            age_s=settings.priority_age_ms / 1000,
        ),
        clock,
        PlaneLimit(_limits(settings.running_min, settings.running_max), settings.working_max),
    )
    return Plane(
        clock=clock,
        ids=wrap.ids(RandomIds()),
        store=store,
        bundles=bundles,
        providers=wrap.providers(providers),
        scanner=wrap.scanner(Scanner()),
        rate=Rate(),
        doorstep=Doorstep(
            StepRule(turn_max=settings.doorstep_turn_max, waiting_max=settings.doorstep_waiting_max),
            clock,
            behind=store.behind,
            full=admission.full,
        ),
        admission=admission,
        capacity=Capacity(_limits(settings.in_flight_min, settings.running_max), clock),
        health=Health(
            HealthRule(
                faults_max=settings.health_faults_max,
                rest_s=settings.health_rest_s,
                retry_after_max_s=settings.health_retry_after_max_s,
            )
        ),
        running=running,
        heartbeats=Heartbeats(clock, settings.heartbeat_s),
        limits=Limits(
            body_bytes_max=settings.body_bytes_max,
            body_values_max=settings.body_values_max,
            body_timeout_s=settings.body_timeout_s,
            deadline_ms_max=settings.deadline_ms_max,
            scan_bytes_max=settings.scan_bytes_max,
            attempts_max=settings.provider_attempts_max,
            answer_keep_s=settings.answer_keep_s,
            key_keep_s=settings.key_keep_s,
        ),
        recovery=recovery,
        telemetry=telemetry,
    )


def _limits(floor: int, ceiling: int) -> LimitRule:
    """A floor that was left alone does not stand in the way of a low ceiling."""
    return LimitRule(floor=min(floor, ceiling), ceiling=ceiling)


def _batch_limits(settings: Settings) -> BatchLimits:
    return BatchLimits(
        items_max=settings.batch_items_max,
        bytes_max=settings.batch_bytes_max,
        open_max=settings.batches_open_max,
        stored_bytes_max=settings.batches_bytes_max,
        running_max=settings.batch_running_max,
        keep_s=settings.batch_keep_s,
    )


def _metrics_door(settings: Settings, metrics: Metrics) -> MetricsDoor | None:
    """Who may scrape; None when metrics are off. Raises CannotStart, KeyUnusable."""
    if not settings.metrics:
        return None
    token = read_metrics_token(settings)
    digest = None if token is None else hashlib.sha256(token).digest()
    return MetricsDoor(token_digest=digest, exposition=metrics.exposition)
