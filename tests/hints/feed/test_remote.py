"""Feeds whose sink is a server of the contract, over real gRPC; and the command."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest

from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.machine import State
from terraflow.hints.feed.remote import RemoteSink, Target
from terraflow.hints.words import Entry, Report, Scope, Stats
from tests.hints.feed.publisher import CLEARED, Publisher, batch, removed, stored
from tests.hints.feed.running import keys, settings
from tests.hints.feed.server import Told


async def until(true: Callable[[], bool], within_s: float = 8.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


class Relay:
    """An engine's double, a feed, a server's double."""

    def __init__(self, publisher: Publisher, server: Told, **sinks: object) -> None:
        self.publisher = publisher
        self.server = server
        self.sink = RemoteSink(Target(address=f"127.0.0.1:{server.port}", token="secret"), again_s=0.05, **sinks)
        self.feeds = Feeds([settings(publisher)], self.sink)
        self.sink.tell_anew = self.feeds.tell_anew
        self.tasks = [asyncio.get_running_loop().create_task(part) for part in (self.feeds.run(), self.sink.run())]

    def held(self, server: Told | None = None) -> set[bytes]:
        return {prefix_hash for _, prefix_hash in (server or self.server).held.get("r", {})}

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    publisher, server = Publisher(), await Told().start()
    made = Relay(publisher, server)
    await until(lambda: all(made.feeds.connected().values()) and made.feeds.states()["r"] is State.IN_SEQUENCE)
    yield made
    await made.close()
    await publisher.close()
    await server.stop()


async def test_what_the_engine_does_reaches_the_server_in_order(relay):
    await relay.publisher.publish(batch(stored(1, blocks=3), removed(3), stored(3, parent=2, lora_name="sql")))
    both = keys(1, 3)
    await until(lambda: ("sql", both[2]) in relay.server.held.get("r", {}))
    assert relay.server.held["r"] == {("", both[0]): (2, 1), ("", both[1]): (4, 1), ("sql", both[2]): (6, 1)}
    assert relay.server.order == ["report", "evict", "report"]
    assert ("authorization", "Bearer secret") in relay.server.metadata
    await relay.publisher.publish(batch(CLEARED))
    await until(lambda: relay.held() == set())


async def test_a_source_in_doubt_is_withdrawn_and_told_again_when_it_is_certain(relay):
    await relay.publisher.publish(batch(stored(1)))
    await until(lambda: relay.held() == set(keys(1)))
    relay.publisher.answers = False
    await relay.publisher.publish(batch(stored(20)), lost=True)
    await relay.publisher.publish(batch(stored(30)))
    await until(lambda: relay.held() == set(keys(30)))
    assert relay.sink.counters.withdrawn >= 1
    relay.publisher.answers = True
    await until(lambda: relay.held() == {*keys(1), *keys(20), *keys(30)})


async def test_a_server_that_was_away_is_told_anew(relay):
    await relay.publisher.publish(batch(stored(1, blocks=2)))
    await until(lambda: relay.held() == set(keys(1, 2)))
    await relay.server.stop()
    await relay.publisher.publish(batch(removed(2), stored(7)))
    await until(lambda: relay.sink.counters.calls_failed > 0)
    other = await Told().start(relay.server.port)
    await until(lambda: relay.held(other) == {*keys(1), *keys(7)})
    assert other.order[0] == "clear"
    assert relay.sink.counters.resyncs > 0
    await other.stop()


async def test_too_much_that_waits_is_told_anew():
    publisher, server = Publisher(), await Told().start()
    relay = Relay(publisher, server, blocks_max=8)
    await until(lambda: all(relay.feeds.connected().values()))
    for number in range(12):
        await publisher.publish(batch(stored(number * 10, blocks=4)))
    expected = {key for number in range(12) for key in keys(number * 10, 4)}
    await until(lambda: relay.held() == expected)
    assert relay.sink.counters.overflows > 0
    await relay.close()
    await publisher.close()
    await server.stop()


async def test_statistics_and_what_is_no_chain():
    server = await Told().start()
    sink = RemoteSink(Target(address=f"127.0.0.1:{server.port}"))
    task = asyncio.get_running_loop().create_task(sink.run())
    sink.stats("t", "m", "r", Stats(pressure=0.5, hit_rate=0.25, t2_hit_tokens=7))
    sink.ingest(Report(replica="r", model="m", tenant="t", scheme="s", entries=(Entry("", [b"a", b"b"], [4, 2], 2),)))
    many = [number.to_bytes(4, "big") for number in range(5_000)]
    sink.ingest(
        Report(replica="q", model="m", tenant="t", scheme="s", entries=(Entry("", many, list(range(1, 5_001)), 1),))
    )
    sink.evict_many(Scope("t", "m", "s"), "q", "", many[:3])
    await until(lambda: len(server.held.get("q", ())) == 4_997)
    assert (server.stats["r"].pressure, server.stats["r"].t2_hit_tokens) == (0.5, 7)
    assert server.held["r"] == {("", b"a"): (4, 2), ("", b"b"): (2, 2)}
    assert server.held["q"]["", many[-1]] == (5_000, 1)
    assert sink.counters.refused == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await server.stop()


async def test_the_command_relays_and_tells_its_counters():
    publisher, server = Publisher(), await Told().start()
    await publisher.publish(batch(stored(1, blocks=2)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from terraflow.cli.main import main; main()",
        "hints", "subscribe", "--json", "--interval-s", "0.2",
        "--server", f"127.0.0.1:{server.port}", "--endpoint", publisher.endpoint,
        "--replay-endpoint", publisher.replay_endpoint, "--replica", "r", "--model", "m", "--tenant", "t",
        "--scheme", "s", "--lora", "3=sql",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await until(lambda: len(server.held.get("r", ())) == 2, 20.0)
        await publisher.publish(batch(stored(9, lora_id=3)))
        await until(lambda: ("sql", keys(9)[0]) in server.held["r"])
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert process.returncode == 0
    said = [line.removeprefix("hints subscribe: ") for line in err.decode().splitlines()]
    assert said[0] == f"hears {publisher.endpoint} as t/m/r, tells 127.0.0.1:{server.port}"
    assert set(said[1:]) == {
        f"the hints server 127.0.0.1:{server.port}: answers",
        f"feed t/m/r: connected to {publisher.endpoint}",
    }
    last = json.loads(out.splitlines()[-1])
    assert (last["states"], last["connected"], server.greeted) == ({"r": "in sequence"}, True, 1)
    assert (last["server"]["blocks_reported"], last["feed"]["batches"]) == (3, 2)
    await publisher.close()
    await server.stop()


@pytest.mark.parametrize(
    "bad",
    [
        ["--endpoint", "nowhere"],
        ["--lora", "x=y"],
        ["--rank", "1"],
        ["--token-file", "/nonexistent"],
        ["--cert-file", "/dev/null"],
        ["--metrics-url", "ftp://x"],
        ["--token-file", "/dev/null", "--server", "elsewhere:1"],
    ],
)
def test_options_that_are_none(bad):
    from typer.testing import CliRunner

    from terraflow.cli.hints import app

    given = ["subscribe", "--endpoint", "tcp://127.0.0.1:1", "--replica", "r", "--model", "m", "--tenant", "t"]
    result = CliRunner().invoke(app, [*given, "--scheme", "s", *bad])
    assert result.exit_code == 2
    assert "hints subscribe: " in result.stderr
