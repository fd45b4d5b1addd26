"""The route-hint service, opened as its settings say: alone for `terraflow hints serve`, or inside a plane.

1. What a setting names and cannot be used refuses to start, with the setting and the file in one line.
2. It is ready once the snapshot is restored and the feeds have begun; it listens when it is ready.
3. Sweeping and writing the snapshot are background work in small steps. What fails there is logged and tried again.
4. At the end: health says so, calls end within `drain_s`, and the snapshot is written once more.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from terraflow.app.background import again, beside
from terraflow.app.hints_opening import (
    lock_data_folder,
    open_feeds,
    open_grounds,
    open_identities,
    open_internal_token,
    open_policies,
    open_tls,
    read_namespace_key,
)
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.opening import CannotStart
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.http2.health import Health
from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.reflection import Reflection
from terraflow.hints.http2.server import Server
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.folder import PolicyFolder
from terraflow.hints.policy.sources import PolicySources
from terraflow.hints.service.http import Listener
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.other_metrics import connection_families, feed_families, live_families, policy_families
from terraflow.hints.service.pages import internal_routes, public_routes
from terraflow.hints.service.recent import EVERY_S, Recent, troubles
from terraflow.hints.service.rpcs import SERVICE, HintService
from terraflow.hints.snapshot import SnapshotDamaged, restore_snapshot, write_snapshot
from terraflow.hints.words import MESSAGE_BYTES_MAX
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.hints")

SWEEPS = 60
"""Parts of a sweep: each looks at a bounded number of replicas, so that all of them are seen within the interval."""
FLIGHT_S = 10.0
"""How long an answer counts as a request in flight, where nobody tells how long it really is."""


class OtherFeeds(Protocol):
    """Feeds that somebody else runs over the same hints."""

    def running(self) -> Feeds | None:
        """Those that are read now, None for none."""
        ...

    async def state(self) -> Mapping[str, Any]:
        """Where they stand, or stood when they were last read."""
        ...


class RunningHints:
    """The service, open. `live` is what the plane's own client and the feeds use."""

    def __init__(self, settings: HintsSettings, clock: Clock, assigned: Assigned | None) -> None:
        self.settings = settings
        self._clock = clock
        self._remember = assigned is None and settings.assignment_memory
        if self._remember:
            assigned = Assigned(flight_max_s=FLIGHT_S)
        self.live = LiveHints(open_grounds(settings, assigned), clock)
        self.metrics = Metrics(self.live.index)
        self.metrics.also(lambda: live_families(self.live))
        self.policies = PolicySources(self.live.adopt)
        self.ready = False
        self.ports: dict[str, int] = {}
        """Where it listens: `grpc`, `http`, `internal`."""
        self.closing = contextlib.AsyncExitStack()
        self._feeds = open_feeds(settings, self.live)
        self.feeds_restored: Mapping[str, Any] = {}
        """Where all feeds stood, as the snapshot has it."""
        self._beside: OtherFeeds | None = None
        self.metrics.also(lambda: feed_families(self._all_feeds()))
        self._recent = Recent(lambda: troubles(self.live.index, self._all_feeds()), clock.monotonic)
        self.metrics.also(self._recent.families)

    async def stop(self) -> None:
        """Rule 4. Idempotent."""
        self.ready = False
        self.metrics.up = False
        await self.closing.aclose()

    def read_beside(self, feeds: OtherFeeds) -> None:
        """Count these feeds as well, and keep in the snapshot where they stand."""
        self._beside = feeds

    def _all_feeds(self) -> list[Feeds]:
        beside = self._beside.running() if self._beside is not None else None
        return [self._feeds] if beside is None else [self._feeds, beside]

    # Opening, in the order in which it happens

    async def open(self) -> None:
        """Everything but listening. Raises CannotStart, KeyUnusable."""
        settings = self.settings
        if settings.policy_dir is not None:
            folder = PolicyFolder(Path(settings.policy_dir), self.policies.from_folder)
            self.metrics.also(lambda: policy_families(folder))
            self.policies.from_folder(open_policies(folder))
            beside(self.closing, folder.watch())
        if settings.snapshot:
            await self._restore(settings.snapshot_path())
            self.closing.push_async_callback(self._write_snapshot)
            beside(self.closing, again(self._clock, settings.snapshot_interval_s, self._write_snapshot))
        beside(self.closing, again(self._clock, settings.sweep_interval_s / SWEEPS, self._sweep))
        beside(self.closing, again(self._clock, EVERY_S, self._recent.take))
        if settings.feeds:
            beside(self.closing, self._feeds.run())

    async def listen_http(self) -> None:
        """Answer operators and orchestrators. Raises CannotStart, KeyUnusable."""
        settings, token = self.settings, open_internal_token(self.settings)
        public = public_routes(self.metrics.exposition, self._unready)
        internal = internal_routes(self.live, self.policies)
        for name, routes, host, port, guard in (
            ("http", public, settings.http_host, settings.http_port, None),
            ("internal", internal, settings.internal_host, settings.internal_port, token),
        ):
            listener = Listener(routes, host=host, port=port, token=guard)
            try:
                self.ports[name] = await listener.start()
            except OSError as trouble:
                raise cannot_listen(name, host, port, trouble) from None
            self.closing.push_async_callback(listener.stop)

    def _unready(self) -> str:
        return "" if self.ready else "starting, or stopping"

    async def listen(self) -> None:
        """Answer calls. Raises CannotStart, KeyUnusable."""
        settings = self.settings
        identities, key = open_identities(settings), read_namespace_key(settings)
        service = HintService(
            self.live,
            identities,
            self.metrics,
            namespace_key=key,
            remember=self._remember,
            report_streams_max=settings.report_streams_max,
            watch_streams_max=settings.watch_streams_max,
        )
        health = Health()
        server = Server(
            {**service.methods(), **health.methods(), **Reflection([SERVICE, "grpc.health.v1.Health"]).methods()},
            limits=Limits(
                connections_max=settings.connections_max,
                connections_per_address_max=settings.connections_per_address_max,
                streams_max=settings.calls_per_connection_max,
                message_bytes_max=MESSAGE_BYTES_MAX,
            ),
            tls=open_tls(settings),
            on_fault=self._fault,
            on_renewed=self._renewed,
        )
        try:
            self.ports["grpc"] = await server.start(settings.bind_host, settings.bind_port)
        except OSError as trouble:
            raise cannot_listen("bind", settings.bind_host, settings.bind_port, trouble) from None
        self.closing.push_async_callback(server.stop, float(settings.drain_s))
        self.closing.callback(health.stop)
        health.set(SERVICE, True)
        self.metrics.also(lambda: connection_families(server.shared.tally))

    def _fault(self, place: str, trouble: BaseException) -> None:
        if place == "tls":
            log.warning("TLS: %s cannot be used, and the former stay in force: %s", self._tls_files(), trouble)
        else:
            log.error("%s failed", place, exc_info=trouble)

    def _renewed(self) -> None:
        log.info("TLS: %s are renewed, for connections from now on", self._tls_files())

    def _tls_files(self) -> str:
        settings = self.settings
        names = (settings.tls_cert_file, settings.tls_key_file, settings.client_ca_file)
        return ", ".join(name for name in names if name is not None)

    def is_ready(self) -> None:
        """Say so."""
        self.ready = True
        self.metrics.up = True

    # Background

    async def _sweep(self) -> None:
        while self.live.sweep():
            await self._clock.sleep(0)

    async def _restore(self, path: Path) -> None:
        try:
            restored = await restore_snapshot(path, self.live.index, self._clock)
        except (SnapshotDamaged, OSError) as trouble:
            log.error("the snapshot %s is ignored: %s", path, trouble)
            return
        if restored is not None:
            self.feeds_restored = restored.feeds
            self._feeds.resume(restored.feeds)
            log.info("%d entries are back from a snapshot that is %.0f s old", restored.entries, restored.age_s)

    async def _write_snapshot(self) -> None:
        path = self.settings.snapshot_path()
        try:
            feeds_at = await self._feeds.state()
            if self._beside is not None:
                feeds_at |= await self._beside.state()
            await write_snapshot(path, self.live.index, self._clock, feeds_at)
        except OSError as trouble:
            log.error("the snapshot %s cannot be written: %s", path, trouble.strerror or trouble)
        except Exception as trouble:
            # It is written at the end, too, where what else is to be ended must not wait for it.
            log.error("the snapshot %s cannot be written", path, exc_info=trouble)


async def open_hints(
    settings: HintsSettings, clock: Clock, *, listen: bool = True, assigned: Assigned | None = None
) -> RunningHints:
    """The service, ready. `listen` false: for this process alone. `assigned`: the memory of who else routes here.

    Raises CannotStart, KeyUnusable, and leaves nothing open then.
    """
    running = RunningHints(settings, clock, assigned)
    try:
        running.closing.callback(os.close, lock_data_folder(settings))
        if listen:
            await running.listen_http()
        await running.open()
        if listen:
            await running.listen()
    except BaseException:
        await running.stop()
        raise
    running.is_ready()
    return running


FLAGS = {"bind": "--port", "http": "--http-port", "internal": "--internal-port"}
"""What `terraflow hints serve` calls the port of each listener."""


def cannot_listen(name: str, host: str, port: int, trouble: OSError) -> CannotStart:
    """Why an address is not to be had, by the setting to change: the port where it is taken, else the host."""
    if trouble.errno in (errno.EADDRINUSE, errno.EACCES):
        return CannotStart(
            f"{name}_port: cannot listen on {host}:{port}: {os.strerror(trouble.errno)}; give another port, or 0 for a"
            f" free one, in the settings or with {FLAGS[name]}"
        )
    return CannotStart(f"{name}_host: cannot listen on {host}:{port}: {trouble.strerror or trouble}")
