"""The feeds of a plane's own hints: what the active bundle's replicas publish, read in this process.

1. They follow the bundle: when its replicas change, feeds that go on keep what they know of their engines, and so they
   do over a restart, with the snapshot of the service.
2. No replica's silence keeps a bundle from coming into force.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from terraflow import __version__
from terraflow.app.background import beside
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability
from terraflow.contracts.fleet import Replica
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.live import LiveHints

UNTOLD_SCHEME = "engine"
"""For engines whose blocks nobody looks up, because their fleet has no tokenizer: their pressure is wanted all the
same."""


class FleetFeeds:
    """The feeds of one plane."""

    def __init__(self, live: LiveHints, state: Mapping[str, Any]) -> None:
        """`state` is what `state` of an earlier process gave, empty for none."""
        self._live = live
        self._state = state
        self._feeds: Feeds | None = None
        self._reading = contextlib.AsyncExitStack()
        self._labelled: frozenset[tuple[str, str, str]] = frozenset()

    async def follow(self, bundle: Bundle) -> None:
        """Read what the bundle's replicas publish, and nothing else."""
        self._label(bundle)
        wanted = feeds_of(bundle)
        if wanted == (self._feeds.settings if self._feeds is not None else ()):
            return
        await self.close()
        if wanted:
            self._feeds = Feeds(wanted, self._live, client_version=f"terraflow/{__version__}")
            self._feeds.resume(self._state)
            beside(self._reading, self._feeds.run())

    def _label(self, bundle: Bundle) -> None:
        labelled = {(*c.hinted_as, r.id): r.labels for c in _fleets(bundle) for r in _used(c) if r.labels}
        for gone in self._labelled - labelled.keys():
            self._live.register(*gone, {})
        for replica, labels in labelled.items():
            self._live.register(*replica, labels)
        self._labelled = frozenset(labelled)

    def running(self) -> Feeds | None:
        """Those that are read now, None for none."""
        return self._feeds

    async def state(self) -> Mapping[str, Any]:
        """What a restart would lose: where each feed stands, or stood when it was last read."""
        return self._state if self._feeds is None else await self._feeds.state()

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        await self._reading.aclose()
        self._state = await self.state()
        self._feeds = None


def feeds_of(bundle: Bundle) -> tuple[FeedSettings, ...]:
    """A feed for each replica that is used and publishes; one that several fleets name alike is read once."""
    found: dict[str, FeedSettings] = {}
    for capability in _fleets(bundle):
        for replica in _used(capability):
            if replica.events is not None:
                feed = _feed(capability, replica, replica.events)
                found.setdefault(feed.name, feed)
    return tuple(found.values())


def _feed(capability: Capability, replica: Replica, events: str) -> FeedSettings:
    fleet = capability.fleet
    assert fleet is not None
    tenant, model = capability.hinted_as
    return FeedSettings(
        replica=replica.id,
        model=model,
        tenant=tenant,
        scheme=fleet.scheme or UNTOLD_SCHEME,
        endpoint=events,
        replay_endpoint=replica.replay,
        labels=replica.labels,
        metrics_url=replica.metrics,
    )


def _fleets(bundle: Bundle) -> list[Capability]:
    return [capability for capability in bundle.capabilities.values() if capability.fleet is not None]


def _used(capability: Capability) -> list[Replica]:
    assert capability.fleet is not None
    return [replica for replica in capability.fleet.replicas if replica.enabled]
