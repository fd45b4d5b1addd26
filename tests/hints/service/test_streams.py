"""Changes of the index, as readers of streams have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from terraflow.hints.deciding.look import Grounds
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Binding, Caller
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.streams import METRICS_EVERY_S, Changes, metrics_now_and_then, wanted
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT, Entry, Report
from tests.storage.makers import SetClock

EVERYBODY = Caller(Binding(name="", tenants=("*",)))


@pytest.fixture
def live() -> LiveHints:
    """An empty index."""
    return LiveHints(Grounds(index=Index()), SetClock())


def changes_of(live: LiveHints, ring: int = 16) -> Changes:
    return Changes(live, Metrics(live.index), ring)


def add(live: LiveHints, *hashes: bytes, tenant: str = "t") -> None:
    entry = Entry("", list(hashes), [1] * len(hashes), 1)
    live.ingest(Report(replica="r", model="m", tenant=tenant, scheme="s", entries=(entry,)))


async def begun(reader: AsyncGenerator[pb.CacheEvent, None], live: LiveHints, block: bytes = b"first") -> None:
    """The reader waits, and has had the change of a new block of tenant t."""
    first = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    add(live, block)
    assert (await first).prefix_hash == block


async def test_two_readers_see_the_same_and_the_index_has_one_listener(live: LiveHints) -> None:
    changes = changes_of(live)
    async with aclosing(changes.read(lambda _: True)) as one, aclosing(changes.read(lambda _: True)) as two:
        waiting = [asyncio.ensure_future(anext(one)), asyncio.ensure_future(anext(two))]
        await asyncio.sleep(0)
        assert len(live._listeners) == 1
        add(live, b"a")
        assert [event.prefix_hash for event in await asyncio.gather(*waiting)] == [b"a", b"a"]
    assert live.index.changed is None


async def test_what_is_overwritten_before_a_reader_looked_is_lost_and_counted(live: LiveHints) -> None:
    metrics = Metrics(live.index)
    changes = Changes(live, metrics, 16)
    async with aclosing(changes.read(lambda _: True)) as reader:
        await begun(reader, live)
        for number in range(20):
            add(live, b"%02d" % number)
        seen = [(await anext(reader)).prefix_hash for _ in range(16)]
        assert seen == [b"%02d" % number for number in range(4, 20)]
    assert metrics.stream_drops == {"events": 4}


async def test_of_what_is_lost_only_what_the_filter_admits_is_counted(
    live: LiveHints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("terraflow.hints.service.streams.COUNTS_MAX", 3)
    metrics = Metrics(live.index)
    changes = Changes(live, metrics, 16)
    everything, one = (
        wanted(pb.StreamEventsRequest(), EVERYBODY),
        wanted(pb.StreamEventsRequest(tenant_id="t"), EVERYBODY),
    )
    async with aclosing(changes.read(one)) as reader:
        await begun(reader, live)
        for number in range(40):
            add(live, b"%02d" % number, tenant="t" if number % 10 == 0 else f"u{number}")
        assert (await anext(reader)).prefix_hash == b"30"
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        assert metrics.stream_drops == {"events": 3}
        add(live, b"last")
        assert (await waiting).prefix_hash == b"last"
        for number in range(40):
            add(live, b"x%d" % number, tenant="t" if number < 2 else "u")
    assert metrics.stream_drops == {"events": 5}
    async with aclosing(changes.read(everything)) as reader:
        await begun(reader, live, b"new")
        for number in range(50):
            add(live, b"%02d" % number, tenant="v")
            if number == 40:
                assert (await anext(reader)).prefix_hash == b"25"
        assert metrics.stream_drops == {"events": 30}
    assert metrics.stream_drops == {"events": 38}


async def test_looking_through_what_is_not_wanted_gives_others_their_turn(live: LiveHints) -> None:
    changes = changes_of(live, 10_000)
    async with aclosing(changes.read(lambda change: change.hash == b"end")) as reader:
        found = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        add(live, *(b"%05d" % number for number in range(5_000)))
        add(live, b"end")
        turns = 0
        while not found.done():
            await asyncio.sleep(0)
            turns += 1
        assert found.result().prefix_hash == b"end"
        assert turns >= 10


@pytest.mark.parametrize(
    ("request_", "caller", "seen"),
    [
        (pb.StreamEventsRequest(), EVERYBODY, [b"t", b"u"]),
        (pb.StreamEventsRequest(tenant_id="u"), EVERYBODY, [b"u"]),
        (pb.StreamEventsRequest(model_id="other"), EVERYBODY, []),
        (pb.StreamEventsRequest(types=[pb.CacheEvent.PREFIX_EVICTED]), EVERYBODY, []),
        (pb.StreamEventsRequest(tenant_id=PROBE_TENANT), EVERYBODY, []),
        (pb.StreamEventsRequest(), Caller(Binding(name="", tenants=("u",))), [b"u"]),
        (pb.StreamEventsRequest(tenant_id="t"), Caller(Binding(name="", tenants=("u",))), []),
    ],
)
async def test_filters_are_exact(
    live: LiveHints, request_: pb.StreamEventsRequest, caller: Caller, seen: list[bytes]
) -> None:
    told = []
    passes = wanted(request_, caller)
    end = live.listen(lambda change: told.append(change.hash) if passes(change) else None)
    for tenant in ("t", "u", PROBE_TENANT):
        add(live, tenant.encode(), tenant=tenant)
    end()
    assert told == seen


async def test_metrics_are_told_at_once_and_then_at_intervals(live: LiveHints) -> None:
    metrics = Metrics(live.index)
    request = pb.StreamMetricsRequest(names=["inferencecache_server_up"])
    began_us = live.clock.now()
    async with aclosing(metrics_now_and_then(request, EVERYBODY, live, metrics)) as told:
        first = await anext(told)
        metrics.up = True
        second = await anext(told)
    assert [first.value, second.value] == [0.0, 1.0]
    assert [first.timestamp_us - began_us, second.timestamp_us - began_us] == [0, METRICS_EVERY_S * 1e6]
