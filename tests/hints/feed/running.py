"""Feeds that run over real sockets, quick to doubt and to ask again, and what is known by them."""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from terraflow.hints.blocks import block_keys
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.index.index import Index
from terraflow.hints.words import Scope
from tests.hints.feed.hostile import IndexSink
from tests.hints.feed.publisher import Publisher

SCOPE = Scope("t", "m", "s")
PAGE = "vllm:num_requests_running 64\nvllm:num_requests_waiting 64\nvllm:prefix_cache_queries_total {asked}\n"
"""An engine's metrics."""


def settings(publisher: Publisher, replica: str = "r", **more: object) -> FeedSettings:
    given: dict[str, object] = {
        "replica": replica, "tenant": "t", "model": "m", "scheme": "s",
        "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint,
        "heartbeat_s": 0.4, "replay_timeout_s": 0.3, "retry_s": 0.05, "stale_retry_s": 0.1,
    }  # fmt: skip
    return msgspec.convert({**given, **more}, FeedSettings)


def keys(first: int, number: int = 1, size: int = 2) -> list[bytes]:
    """The keys of `number` blocks of the double's tokens, from the block `first` on."""
    return block_keys(list(range(first * size, (first + number) * size)), size)


class Running:
    """Feeds that run, and what the index knows by them."""

    def __init__(self, *configured: FeedSettings, state: dict[str, object] | None = None) -> None:
        self.index = Index()
        self.sink = IndexSink(self.index)
        self.feeds = Feeds(configured, self.sink, again_s=0.05)
        if state is not None:
            self.feeds.resume(state)
        self.task = asyncio.get_running_loop().create_task(self.feeds.run())

    def holds(self, chain: Sequence[bytes], replica: str = "r", adapter: str = "") -> int:
        found = self.index.chain(SCOPE, adapter, chain, [2] * len(chain), self.sink.now)
        return next((held.blocks for held in found if held.replica == replica), 0)

    def number(self, name: str) -> int:
        return sum(counted.get(name, 0) for counted in self.feeds.numbers().values())

    async def until(self, true: Callable[[], bool], within_s: float = 5.0) -> None:
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, (self.feeds.numbers(), self.feeds.states())
            await asyncio.sleep(0.01)

    async def connected(self, replays: int = 1) -> None:
        await self.until(lambda: all(self.feeds.connected().values()))
        if replays:
            await self.until(lambda: self.number("replays_completed") >= replays)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
