"""All configured feeds, supervised.

1. A feed that fails is logged, counted and begun anew after a growing delay, with its replicas cleared. It stops
   neither the others nor the index.
2. `state` is what `resume` takes, in another process: sequences and the mapping of engines' hashes, so that a feed goes
   on where it was and an engine's removals are still understood.
3. A configured feed whose scope, replica or endpoint is not the one that a state was kept for begins with nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import zmq
import zmq.asyncio

from terraflow.hints.feed.feed import Feed, FeedState
from terraflow.hints.feed.machine import State
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.feed.sink import Sink

log = logging.getLogger("terraflow.hints")

AGAIN_S = (1.0, 60.0)
WELL_S = 600.0
"""A feed that ran for so long had nothing wrong with it when it began: the delay begins anew."""
SOCKETS, SOCKETS_A_FEED = 1_023, 8
"""ZeroMQ's own bound, which some three hundred feeds reach; a feed has three sockets, and one a replay."""


class Feeds:
    """Every feed of a process. `run` serves them until cancelled."""

    def __init__(
        self, settings: Sequence[FeedSettings], sink: Sink, *, client_version: str = "", again_s: float = AGAIN_S[0]
    ) -> None:
        """Raises ValueError for two feeds of one name, and for a LoRA map whose ids are no numbers."""
        names = [feed.name for feed in settings]
        for at, name in enumerate(names):
            if name in names[:at]:
                first = names.index(name) + 1
                raise ValueError(f"number {at + 1} is of the same tenant, model and replica as number {first}: {name}")
        for feed in settings:
            feed.lora_names()
        self._settings = {feed.name: feed for feed in settings}
        self._sink = sink
        self._client_version = client_version
        self._again_s = again_s
        self._kept: dict[str, FeedState] = {}
        self._feeds: dict[str, Feed] = {}
        self._faults: dict[str, int] = dict.fromkeys(self._settings, 0)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave, before `run`. What no configured feed can have given is left out, here or when the
        feed begins."""
        for name, settings in self._settings.items():
            try:
                kept = msgspec.convert(state.get(_place(settings)), FeedState | None, strict=False)
                if kept is not None:
                    self._kept[name] = kept
            except msgspec.ValidationError as error:
                _unfit(name, error)

    async def state(self) -> dict[str, Any]:
        """Everything that a restart of this service would lose: maps, lists, numbers, text and bytes.

        Others have their turns in between: a hundred thousand blocks are some 30 ms of work.
        """
        gathered: dict[str, Any] = {}
        for name, settings in self._settings.items():
            feed = self._feeds.get(name)
            kept = self._kept.get(name) if feed is None else await feed.state()
            if kept is not None:
                gathered[_place(settings)] = msgspec.to_builtins(kept, builtin_types=(bytes,))
            await asyncio.sleep(0)
        return gathered

    @property
    def settings(self) -> tuple[FeedSettings, ...]:
        """What is configured, in its order."""
        return tuple(self._settings.values())

    def numbers(self) -> dict[str, dict[str, int]]:
        """Every counter of every feed, by the feed's name."""
        counted: dict[str, dict[str, int]] = {}
        for name in self._settings:
            feed = self._feeds.get(name)
            counted[name] = {} if feed is None else feed.numbers()
            counted[name]["faults"] = self._faults[name]
        return counted

    def states(self) -> dict[str, State]:
        """Where each replica's stream stands."""
        return {replica: state for feed in self._feeds.values() for replica, state in feed.states().items()}

    def connected(self) -> dict[str, bool]:
        """Whether each feed's socket has its engine at the other end."""
        return {name: name in self._feeds and self._feeds[name].connected for name in self._settings}

    def tell_anew(self, replica: str | None) -> None:
        """Clear a replica, or all, and tell the sink everything that is known of it."""
        for feed in self._feeds.values():
            for source in feed.sources().values():
                if replica is None or source.replica == replica:
                    source.tell_anew()

    def feed(self, name: str) -> Feed | None:
        """A running feed."""
        return self._feeds.get(name)

    async def run(self) -> None:
        """Serve until cancelled."""
        context = zmq.asyncio.Context()
        context.set(zmq.MAX_SOCKETS, min(context.get(zmq.SOCKET_LIMIT), SOCKETS + SOCKETS_A_FEED * len(self._settings)))
        try:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
                await asyncio.gather(*(self._supervise(name, context, session) for name in self._settings))
        finally:
            context.destroy(linger=0)

    async def _supervise(self, name: str, context: zmq.asyncio.Context, session: aiohttp.ClientSession) -> None:
        settings = self._settings[name]
        waits_s = self._again_s
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                feed = self._feeds[name] = Feed(
                    settings, self._sink, context, session, client_version=self._client_version
                )
                kept = self._kept.pop(name, None)
                if kept is not None:
                    try:
                        feed.resume(kept)
                    except ValueError as error:
                        _unfit(name, error)
                await feed.run()
            except Exception as error:
                self._faults[name] += 1
                if asyncio.get_running_loop().time() - begun > WELL_S:
                    waits_s = self._again_s
                log.error("feed %s failed and begins anew in %.0f s", name, waits_s, exc_info=error)
            self._clear(self._feeds.pop(name, None))
            await asyncio.sleep(waits_s)
            waits_s = min(waits_s * 2, AGAIN_S[1])

    def _clear(self, feed: Feed | None) -> None:
        if feed is None:
            return
        scope = feed.settings.scope
        for source in feed.sources().values():
            try:
                self._sink.clear(scope.tenant, scope.model, source.replica)
            except Exception as error:
                log.error("a replica could not be cleared: %s", type(error).__name__)


def _unfit(name: str, error: Exception) -> None:
    log.warning("feed %s begins with nothing: its kept state is not one: %s", name, type(error).__name__)


def _place(settings: FeedSettings) -> str:
    return "\n".join((*settings.scope, settings.replica, settings.endpoint))
