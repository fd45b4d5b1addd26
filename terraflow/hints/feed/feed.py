"""One feed: an engine's sockets and metrics page, brought into the sink through a source for each rank.

1. What a source wants asked is asked; what nobody answers is told to it. Nothing else is decided here.
2. The first rank that the engine names takes over the source that the connection began with.
3. The engine is heard while its connection stands, and for two heartbeats after its last message. Its metrics page is
   no sign: an engine whose events nobody hears is lost, however well it is.
4. What an engine still holds is told again every `fresh_s`, in small steps, while its stream is in sequence; what a
   lost engine held is not, and so ages out.
5. A large message is read and applied in turns with everything else; the next one waits for it.
6. A fault of ours ends the feed, and `Feeds` begins it anew with nothing: the source is cleared, never left half
   written.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from collections.abc import Mapping as Table
from typing import Any

import aiohttp
import msgspec
import zmq.asyncio

from terraflow.hints.events.parse import LARGE_BYTES
from terraflow.hints.events.steps import in_turns
from terraflow.hints.feed.machine import Input, State
from terraflow.hints.feed.mapping import Mapping
from terraflow.hints.feed.scrape import Gauge, Unscraped, fetch_page, parse_page
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.feed.sink import Sink
from terraflow.hints.feed.source import Asked, Source, SourceState, frame_steps, read_frame
from terraflow.hints.feed.stream import Command, Frame, Position
from terraflow.hints.feed.telling import Telling, changes, stands
from terraflow.hints.feed.working import Working
from terraflow.hints.feed.zmq import Message, Subscription, replay

STALE_RETRY_S_MAX = 600.0
REORDER_S = 0.2
"""How long a gap without anybody to ask may wait for what was merely overtaken."""
LATE_HEARTBEATS = 1.5
"""Watched four times a heartbeat, and ZeroMQ takes half of one to notice a silent peer: two heartbeats at most."""

LONG_PAGE = 64 << 10
"""Characters of a metrics page that are read within some ms; a longer one is read in a thread."""
FRESH_BLOCKS = 500
FRESH_PAUSE_S = 0.01


class FeedState(msgspec.Struct, kw_only=True):
    """A feed at rest."""

    sources: list[SourceState] = []


class FeedCounters(msgspec.Struct, kw_only=True):
    """What has happened to a feed beside its streams."""

    messages: int = 0
    malformed: int = 0
    undecodable: int = 0
    """Of nobody's stream."""
    ranks_dropped: int = 0
    connects: int = 0
    disconnects: int = 0
    scrapes: int = 0
    scrapes_failed: int = 0


class _Watched:
    """A source with what is under way for it; `working` is set by who makes it."""

    working: Working

    def __init__(self, source: Source, gauge: Gauge) -> None:
        self.source = source
        self.gauge = gauge
        self.epoch_at_scrape = source.stream.epoch
        self.told = stands(source.stream)
        self.asking: asyncio.Task[None] | None = None
        self.due: asyncio.TimerHandle | None = None
        self.waits_s = 0.0


class Feed:
    """One engine's feed. `run` serves it until cancelled."""

    def __init__(
        self,
        settings: FeedSettings,
        sink: Sink,
        context: zmq.asyncio.Context,
        session: aiohttp.ClientSession,
        *,
        client_version: str = "",
    ) -> None:
        self.settings = settings
        self.sink = sink
        self.counters = FeedCounters()
        self.connected = False
        self.silent = False
        self._context = context
        self._session = session
        self._client_version = client_version
        self._watched: dict[int | None, _Watched] = {}
        self._heard_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: asyncio.Future[None] | None = None
        self._telling = Telling(f"feed {settings.name}")
        self._page_trouble = ""

    def resume(self, state: FeedState) -> None:
        """Take up what `state` gave, before `run`. Raises ValueError for what no feed can have given."""
        restored: list[tuple[SourceState, Mapping]] = []
        for kept in state.sources:
            if kept.position.expected < 0 or kept.position.epoch < 0:
                raise ValueError("a position before the first")
            mapped = self._mapping()
            mapped.restore(kept.mapping)
            restored.append((kept, mapped))
        for kept, mapped in restored:
            self._add(kept.rank, mapped, kept.position)

    # What others read

    def sources(self) -> dict[int | None, Source]:
        """The sources by rank."""
        return {rank: watched.source for rank, watched in self._watched.items()}

    async def state(self) -> FeedState:
        """Everything that a restart of this service would lose, each source as of when its turn comes."""
        watched = list(self._watched.items())
        kept: list[SourceState] = []
        for rank, one in watched:
            await one.working.idle()
            kept.append(await one.source.state(rank, _turn))
        return FeedState(sources=kept)

    def numbers(self) -> dict[str, int]:
        """Every counter by name: those of the feed, and the sums over its sources."""
        sums: dict[str, int] = dict(msgspec.structs.asdict(self.counters))
        for watched in self._watched.values():
            for counted in (watched.source.stream.counters, watched.source.mapping.counters):
                for name, value in msgspec.structs.asdict(counted).items():
                    sums[name] = sums.get(name, 0) + value
        return sums

    def states(self) -> dict[str, State]:
        """Where each replica's stream stands."""
        return {watched.source.replica: watched.source.stream.state for watched in self._watched.values()}

    # Running

    async def run(self) -> None:
        """Serve for good; raises what no part of it expects."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        if not self._watched:
            self._add(None, self._mapping())
        subscription = Subscription(
            self._context, settings.endpoint, settings.topic, settings.receive_max, settings.heartbeat_s
        )
        parts: list[Coroutine[Any, Any, None]] = [
            subscription.receive(self._take),
            subscription.watch(self._changed),
            self._watch_silence(),
            self._keep_fresh(),
        ]
        if settings.metrics_url is not None:
            parts.append(self._scrape(settings.metrics_url))
        tasks = [loop.create_task(part) for part in parts]
        self._fault = loop.create_future()
        try:
            done, _ = await asyncio.wait((*tasks, self._fault), return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            self.connected = False
            for watched in self._watched.values():
                self._abandon(watched)
                if watched.due is not None:
                    watched.due.cancel()
            ending = [*tasks, *self._tasks]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            if self._fault.done() and not self._fault.cancelled():
                self._fault.exception()
            self._finish()
            subscription.close()

    def _add(self, rank: int | None, mapped: Mapping, position: Position | None = None) -> _Watched:
        settings = self.settings
        source = Source(
            self.sink,
            settings.scope,
            settings.replica_of(rank),
            limits=settings.limits(),
            mapping=mapped,
            position=position,
        )
        gauge = Gauge(cache_bytes=settings.cache_bytes, client_version=self._client_version)
        watched = self._watched[rank] = _Watched(source, gauge)
        watched.working = Working(source, lambda asked: self._settled(watched, asked), self._spawn)
        if settings.labels:
            self._label(source.replica, settings.labels)
        return watched

    def _label(self, replica: str, labels: Table[str, str]) -> None:
        self.sink.register(self.settings.tenant, self.settings.model, replica, labels)

    def _mapping(self) -> Mapping:
        return Mapping(loras=self.settings.lora_names(), blocks_max=self.settings.blocks_max)

    def _heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self.silent = False

    # Frames

    def _take(self, message: Message | None) -> Awaitable[None] | None:
        if message is None:
            self.counters.malformed += 1
            return None
        self._heard()
        self.counters.messages += 1
        if len(message.payload) >= LARGE_BYTES:
            return self._take_large(message)
        return self._take_frame(read_frame(message.sequence, message.payload))

    async def _take_large(self, message: Message) -> None:
        more = self._take_frame(await _read_in_turns(message))
        if more is not None:
            await more

    def _take_frame(self, frame: Frame) -> Awaitable[None] | None:
        watched = self._of(frame)
        if watched is None:
            return None
        stream = watched.source.stream
        watched.working.happened(lambda: stream.live(frame))
        return watched.working.idle() if watched.working.busy else None

    def _of(self, frame: Frame) -> _Watched | None:
        """The source of a frame. One that cannot be read is the only source's; of several it is nobody's, and the next
        sequence of its own tells of the gap."""
        if frame.batch is None:
            if len(self._watched) == 1:
                return next(iter(self._watched.values()))
            self.counters.undecodable += 1
            return None
        rank = frame.batch.rank
        watched = self._watched.get(rank)
        if watched is not None:
            return watched
        first = self._watched.get(None)
        if first is not None and first.source.stream.counters.batches == 0 and len(self._watched) == 1:
            del self._watched[None]
            if self.settings.labels:
                self._label(first.source.replica, {})
                self._label(self.settings.replica_of(rank), self.settings.labels)
            first.source.replica = self.settings.replica_of(rank)
            self._watched[rank] = first
            return first
        if len(self._watched) >= self.settings.ranks_max:
            self.counters.ranks_dropped += 1
            return None
        return self._add(rank, self._mapping())

    def _settled(self, watched: _Watched, asked_for: list[Asked]) -> None:
        """Something that happened has been followed up."""
        for asked in asked_for:
            self._abandon(watched)
            if asked.start is not None:
                watched.asking = self._spawn(self._replay(watched, asked.start, asked.number))
        stream = watched.source.stream
        if (stood := stands(stream)) != watched.told:
            before, watched.told = watched.told, stood
            whose = "" if len(self._watched) == 1 else f"{watched.source.replica}: "
            for level, said in changes(before, stood, self.settings.replay_endpoint is not None):
                self._telling.say(level, whose + said)
        if not stream.wants_replay:
            if stream.state is State.IN_SEQUENCE:
                watched.waits_s = 0.0
        elif watched.due is None and self.settings.replay_endpoint is not None:
            stale = stream.state is State.STALE
            least, most = (self.settings.stale_retry_s, STALE_RETRY_S_MAX) if stale else (self.settings.retry_s, 10.0)
            watched.waits_s = min(max(least, watched.waits_s * 2), most)
            watched.due = asyncio.get_running_loop().call_later(watched.waits_s, self._is_due, watched)

    def _is_due(self, watched: _Watched) -> None:
        watched.due = None
        try:
            stream = watched.source.stream
            watched.working.happened(lambda: stream.happened(Input.DUE) if stream.wants_replay else [])
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Have `run` raise it: what is scheduled has nobody else to tell."""
        if self._fault is not None and not self._fault.done():
            self._fault.set_exception(error)

    def _spawn(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _abandon(self, watched: _Watched) -> None:
        if watched.asking is not None and watched.asking is not asyncio.current_task():
            watched.asking.cancel()
        watched.asking = None

    async def _replay(self, watched: _Watched, start: int, number: int) -> None:
        stream, working, endpoint = watched.source.stream, watched.working, self.settings.replay_endpoint

        def happened(act: Callable[[], list[Command]]) -> None:
            working.happened(lambda: act() if stream.asking == number else [])

        if endpoint is None:
            await asyncio.sleep(REORDER_S)
            happened(lambda: stream.replay_failed(final=True))
            return

        async def take(message: Message) -> bool:
            frame = await _read_in_turns(message)
            await working.idle()
            if stream.asking == number and (frame.batch is None or self._of(frame) is watched):
                self._heard()
                happened(lambda: stream.replayed(frame))
                await working.idle()
            return stream.asking == number

        settings = self.settings
        ended = await replay(self._context, endpoint, start, settings.receive_max, settings.replay_timeout_s, take)
        happened(stream.replay_ended if ended else stream.replay_failed)

    def _finish(self) -> None:
        """Bring what is under way to its end; a source with which that fails is kept no more."""
        for rank, watched in list(self._watched.items()):
            try:
                watched.working.finish()
            except Exception as error:
                self._telling.say(logging.ERROR, f"{watched.source.replica} is left half written: {error!r}")
                del self._watched[rank]

    # Life

    def _changed(self, connected: bool) -> None:
        before, self.connected = self.connected, connected
        if not connected:
            # Of an attempt that failed the socket says the same, and that is no sign of an engine.
            if before:
                self._heard()
                self.counters.disconnects += 1
                self._telling.say(logging.WARNING, f"the connection to {self.settings.endpoint} is lost")
            return
        self._heard()
        self.counters.connects += 1
        self._telling.say(logging.INFO, f"connected to {self.settings.endpoint}")
        if self.settings.replay_endpoint is not None:
            self._everybody(Input.RECONNECTED)

    def _everybody(self, what: Input) -> None:
        for watched in list(self._watched.values()):
            watched.working.happened(functools.partial(watched.source.stream.happened, what))

    async def _watch_silence(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.heartbeat_s / 4)
            if self.connected:
                self._heard()
            elif not self.silent and loop.time() - self._heard_at > self.settings.heartbeat_s * LATE_HEARTBEATS:
                self.silent = True
                self._everybody(Input.SILENT)
                what = "is lost, and what it held counts for less" if self.counters.connects else "was never reached"
                self._telling.say(
                    logging.WARNING,
                    f"the engine {what}: no connection to {self.settings.endpoint} for two heartbeats",
                )

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.fresh_s)
            await self.keep_fresh()

    async def keep_fresh(self) -> None:
        """Rule 4, once."""
        for watched in list(self._watched.values()):
            hashes = watched.source.mapping.hashes()
            for at in range(0, len(hashes), FRESH_BLOCKS):
                if not watched.source.report_again(hashes[at : at + FRESH_BLOCKS]):
                    break
                await asyncio.sleep(FRESH_PAUSE_S)

    async def _scrape(self, url: str) -> None:
        while True:
            try:
                page = await fetch_page(self._session, url, self.settings.scrape_interval_s)
                samples = parse_page(page) if len(page) < LONG_PAGE else await asyncio.to_thread(parse_page, page)
            except Unscraped as trouble:
                self.counters.scrapes_failed += 1
                if str(trouble) != self._page_trouble:
                    self._page_trouble = str(trouble)
                    self._telling.say(logging.WARNING, f"its metrics page (metrics_url) cannot be read: {trouble}")
            else:
                self.counters.scrapes += 1
                if self._page_trouble:
                    self._page_trouble = ""
                    self._telling.say(logging.INFO, "its metrics page is read again")
                await self._read(samples)
            await asyncio.sleep(self.settings.scrape_interval_s)

    async def _read(self, samples: dict[str, dict[str, float]]) -> None:
        scope = self.settings.scope
        for rank, watched in list(self._watched.items()):
            source = watched.source
            await watched.working.idle()
            sample = samples["*"] if rank is None else samples.get(str(rank), samples["*"])
            reading = watched.gauge.read(sample)
            if reading.restarted and source.stream.epoch == watched.epoch_at_scrape:
                watched.working.happened(functools.partial(source.stream.happened, Input.RESTARTED))
            watched.epoch_at_scrape = source.stream.epoch
            self.sink.stats(scope.tenant, scope.model, source.replica, reading.stats)


async def _read_in_turns(message: Message) -> Frame:
    return await in_turns(frame_steps(message.sequence, message.payload), _turn)


async def _turn() -> None:
    await asyncio.sleep(0)
