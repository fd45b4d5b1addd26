"""The simulated engine with a feed behind it: what it holds is found by the keys that a caller would ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
import pytest

from terraflow.hints.blocks import block_keys
from terraflow.hints.engine.serve import Engine, serving
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFiles
from tests.hints.engine.test_serving import FAST
from tests.hints.feed.running import Running

TEXT = "Which of the suppliers named in the annex has a certificate that is older than two years?"


def _keys(text: str) -> list[bytes]:
    tokenized = LoadedTokenizers({"m": TokenizerFiles(BYTES)}).prompt("m", text)
    assert tokenized is not None
    return block_keys(tokenized, 16)


async def _ask(url: str, text: str, model: str = "m", rank: int = 0) -> None:
    said = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/chat/completions", json=said, headers={"x-data-parallel-rank": str(rank)}) as answer,
    ):
        assert answer.status == 200, await answer.text()


def _feed(events: str, replay: str, **more: Any) -> FeedSettings:
    given = {"replica": "r", "tenant": "t", "model": "m", "scheme": "s", "endpoint": events, "replay_endpoint": replay}
    return msgspec.convert({**given, "heartbeat_s": 1.0, **more}, FeedSettings)


async def _holds(running: Running, chain: Sequence[bytes], blocks: int, replica: str = "r", adapter: str = "") -> None:
    await running.until(lambda: running.holds(chain, replica, adapter) == blocks)


@pytest.mark.parametrize("encoding", ["array", "map", "array-of-maps", "map-of-arrays"])
@pytest.mark.parametrize("hashes", ["int", "signed", "bytes", "text"])
async def test_every_encoding_leads_to_the_same_keys(encoding: str, hashes: str) -> None:
    options = {"encoding": encoding, "hashes": hashes, "model": "m", "costs": FAST, "blocks": 12}
    async with serving(msgspec.convert(options, Engine)) as where:
        running = Running(_feed(where.events[0], where.replays[0]))
        try:
            await running.connected()
            await _ask(where.base_url, TEXT)
            await _holds(running, _keys(TEXT), len(_keys(TEXT)))
            other = "x" * 150
            await _ask(where.base_url, other)
            await _holds(running, _keys(other), len(_keys(other)))
            await _holds(running, _keys(TEXT), 12 - len(_keys(other)))
        finally:
            await running.close()


async def test_what_was_published_before_the_feed_began_is_replayed() -> None:
    async with serving(Engine(model="m", costs=FAST, replay_topic=True)) as where:
        await _ask(where.base_url, TEXT)
        running = Running(_feed(where.events[0], where.replays[0]))
        try:
            await _holds(running, _keys(TEXT), len(_keys(TEXT)))
        finally:
            await running.close()


async def test_a_restarted_engine_holds_nothing_of_before() -> None:
    async with serving(Engine(model="m", costs=FAST)) as where:
        ports = [int(endpoint.rsplit(":", 1)[1]) for endpoint in (where.events[0], where.replays[0])]
        running = Running(_feed(where.events[0], where.replays[0]))
        await running.connected()
        await _ask(where.base_url, TEXT)
        await _ask(where.base_url, "y" + TEXT)
        await _holds(running, _keys(TEXT), len(_keys(TEXT)))
    async with serving(Engine(model="m", costs=FAST, events_port=ports[0], replay_port=ports[1])) as where:
        try:
            await running.until(lambda: all(running.feeds.connected().values()))
            await _ask(where.base_url, "z" + TEXT)
            await _holds(running, _keys("z" + TEXT), len(_keys("z" + TEXT)))
            await running.until(lambda: running.holds(_keys(TEXT)) < len(_keys(TEXT)))
        finally:
            await running.close()


async def test_ranks_and_adapters() -> None:
    engine = Engine(model="m", costs=FAST, ranks=2, loras={"fine": 7}, lora_names=False)
    async with serving(engine) as where:
        feeds = [
            _feed(where.events[rank], where.replays[rank], replica=f"r{rank}", loras={"7": "fine"}) for rank in (0, 1)
        ]
        running = Running(*feeds)
        try:
            await running.connected(2)
            await _ask(where.base_url, TEXT, "fine", rank=1)
            await _holds(running, _keys(TEXT), len(_keys(TEXT)), "r1/dp1", "fine")
            assert running.holds(_keys(TEXT), "r0/dp0", "fine") == 0
        finally:
            await running.close()


async def test_lost_batches_are_replayed_and_bad_ones_stop_nothing() -> None:
    from terraflow.hints.engine.publish import Faults

    async with serving(Engine(model="m", costs=FAST, faults=Faults(drop=0.4, garbage=0.2), seed=5)) as where:
        running = Running(_feed(where.events[0], where.replays[0], retry_s=0.05, stale_retry_s=0.1))
        try:
            await running.connected()
            for turn in range(20):
                await _ask(where.base_url, f"{turn} {TEXT}")
                await asyncio.sleep(0.01)
            async with aiohttp.ClientSession() as http, http.post(f"{where.base_url}/faults", json={}) as answer:
                assert answer.status == 204
            last = "the last " + TEXT
            await _ask(where.base_url, last)
            await _holds(running, _keys(last), len(_keys(last)))
            assert running.number("gaps") > 0
        finally:
            await running.close()
