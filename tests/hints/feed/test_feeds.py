"""Feeds over real sockets."""

import asyncio
import time
from collections.abc import Mapping

import msgspec
import pytest
from aiohttp import web

from terraflow.hints.feed import feeds as module
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.machine import State
from terraflow.hints.feed.zmq import END as END_SEQUENCE
from terraflow.hints.feed.zmq import Message, parse_message
from terraflow.hints.index.index import Index
from terraflow.hints.words import Report
from tests.hints.feed.hostile import IndexSink
from tests.hints.feed.publisher import CLEARED, Publisher, batch, removed, stored
from tests.hints.feed.running import PAGE, SCOPE, Running, keys, settings


async def test_what_is_published_is_held_and_what_is_removed_is_not(publisher, running):
    await publisher.publish(batch(stored(1, blocks=3)))
    await running.until(lambda: running.holds(keys(1, 3)) == 3)
    await publisher.publish(batch(removed(3)))
    await running.until(lambda: running.holds(keys(1, 3)) == 2)
    await publisher.publish(batch(CLEARED))
    await running.until(lambda: running.holds(keys(1, 3)) == 0)


@pytest.mark.parametrize("topic_in_replay", [False, True])
async def test_what_was_published_before_is_replayed(topic_in_replay):
    publisher = Publisher(topic_in_replay=topic_in_replay)
    for number in range(5):
        await publisher.publish(batch(stored(number * 10)))
    running = Running(settings(publisher))
    await running.until(lambda: all(running.holds(keys(number * 10)) for number in range(5)))
    assert publisher.asked == [0]
    await running.close()
    await publisher.close()


async def test_a_lost_batch_is_asked_for_and_live_ones_wait(publisher, running):
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    await publisher.publish(batch(stored(2, parent=1)), lost=True)
    await publisher.publish(batch(stored(3, parent=2)))
    await running.until(lambda: running.holds(keys(1, 3)) == 3)
    assert publisher.asked[1:] == [0]
    assert (running.number("gaps"), running.number("degraded")) == (1, 0)


async def test_a_gap_that_nobody_fills_degrades_and_a_late_answer_heals(publisher, running):
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    publisher.answers = False
    await publisher.publish(batch(stored(2, parent=1)), lost=True)
    await publisher.publish(batch(stored(50)))
    await running.until(lambda: running.feeds.states()["r"] is State.STALE)
    assert running.index.chain(SCOPE, "", keys(1), [2], 0.0)[0].degraded
    assert not running.index.chain(SCOPE, "", keys(50), [2], 0.0)[0].degraded
    publisher.answers = True
    await running.until(lambda: running.feeds.states()["r"] is State.IN_SEQUENCE)
    assert running.holds(keys(1, 2)) == 2
    assert not running.index.chain(SCOPE, "", keys(1), [2], 0.0)[0].degraded


async def test_a_restart_clears_also_when_its_first_batches_are_lost(publisher, running):
    await publisher.publish(batch(stored(1)))
    await publisher.publish(batch(stored(7)))
    await running.until(lambda: running.holds(keys(7)) == 1)
    await publisher.close()
    again = Publisher(publisher.port, publisher.replay_port)
    await again.publish(batch(stored(100)))
    await again.publish(batch(stored(200)))
    await running.until(lambda: running.holds(keys(200)) == 1)
    assert (running.holds(keys(1)), running.holds(keys(7)), running.holds(keys(100))) == (0, 0, 1)
    assert running.number("restarts") == 1
    await again.close()


async def test_an_engine_that_does_not_answer_is_asked_less_and_less_and_at_once_again_when_it_has(publisher):
    quick = {"replay_timeout_s": 0.02, "retry_s": 0.02, "stale_retry_s": 0.05, "heartbeat_s": 5.0}
    running = Running(settings(publisher, **quick))
    await running.connected()
    publisher.answers, before = False, len(publisher.asked)
    await publisher.publish(batch(stored(1)), lost=True)
    await publisher.publish(batch(stored(10)))
    await asyncio.sleep(1.5)
    # After waits of 0.02, 0.04, 0.08 s and so on; without doubling there would be some twenty.
    assert 4 <= len(publisher.asked) - before <= 8
    publisher.answers = True
    await running.until(lambda: running.feeds.states()["r"] is State.IN_SEQUENCE)
    publisher.answers, before = False, len(publisher.asked)
    await publisher.publish(batch(stored(20)), lost=True)
    await publisher.publish(batch(stored(30)))
    await running.until(lambda: len(publisher.asked) - before >= 3, 2.0)
    await running.close()


async def test_a_bad_batch_is_counted_and_the_feed_goes_on(publisher, running):
    await publisher.publish(batch(stored(1)))
    await publisher.publish(b"\xc1 no batch")
    await publisher.publish(batch(stored(5)))
    await running.until(lambda: running.holds(keys(5)) == 1)
    await running.until(lambda: running.feeds.states()["r"] is State.STALE)
    assert running.number("undecodable") == 1
    await publisher.pub.send_multipart([b"kv@test", b"short", b""])
    await publisher.pub.send_multipart([b"kv@test"])
    await publisher.publish(batch(stored(6)))
    await running.until(lambda: running.holds(keys(6)) == 1 and running.number("malformed") == 2)


async def test_an_engine_that_is_lost_is_degraded_within_two_heartbeats(publisher, running):
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    await publisher.close()
    began = time.monotonic()
    await running.until(lambda: running.number("silences") == 1)
    assert time.monotonic() - began < 2 * 0.4 + 0.3
    assert running.index.chain(SCOPE, "", keys(1), [2], 0.0)[0].degraded


async def test_messages_wait_in_the_socket_until_a_large_one_is_applied(publisher, running):
    await publisher.publish(batch(stored(1, blocks=20_000)))
    for number in range(20):
        await publisher.publish(batch(stored(100_000 + number)))
    (source,) = running.feeds.feed("t/m/r").sources().values()
    taken = set()
    async with asyncio.timeout(20):
        while len(source.mapping) < 20_000:
            taken.add(running.number("messages"))
            await asyncio.sleep(0)
    assert taken <= {0, 1}
    await running.until(lambda: running.number("messages") == 21 and len(source.mapping) == 20_020)


async def test_what_is_half_applied_when_the_service_ends_is_kept_whole(publisher, running):
    await publisher.publish(batch(stored(1, blocks=20_000)))
    (source,) = running.feeds.feed("t/m/r").sources().values()
    async with asyncio.timeout(20):
        while True:
            await asyncio.sleep(0)
            if source.mapping:
                break
    assert len(source.mapping) < 20_000
    await running.close()
    assert len(source.mapping) == running.index.entries() == 20_000


async def test_a_restart_that_the_stream_has_seen_is_no_second_one_on_the_page(publisher, running):
    feed = running.feeds.feed("t/m/r")
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    await feed._read({"*": {"queries": 100.0}})
    publisher.sequence, publisher.buffer = 0, []
    await publisher.publish(batch(stored(5)))
    await running.until(lambda: running.holds(keys(5)) == 1)
    await feed._read({"*": {"queries": 3.0}})
    assert (running.number("restarts"), running.holds(keys(5))) == (1, 1)
    await feed._read({"*": {"queries": 1.0}})
    assert (running.number("restarts"), running.holds(keys(5))) == (2, 0)


async def test_each_rank_is_a_source_and_the_first_takes_over(publisher, running):
    await publisher.publish(batch(stored(1), rank=0))
    await running.until(lambda: running.holds(keys(1), "r/dp0") == 1)
    await publisher.publish(batch(stored(2), rank=1), sequence=0)
    await running.until(lambda: running.holds(keys(2), "r/dp1") == 1)
    assert set(running.feeds.states()) == {"r/dp0", "r/dp1"}


async def test_an_unreadable_batch_is_nobodys_of_several_and_the_next_of_its_rank_tells_of_the_gap(publisher, running):
    await publisher.publish(batch(stored(1), rank=0))
    await publisher.publish(batch(stored(2), rank=1), sequence=0)
    await running.until(lambda: len(running.feeds.states()) == 2)
    publisher.answers = False
    await publisher.publish(b"\xc1 no batch")
    await running.until(lambda: running.number("undecodable") == 1)
    assert running.number("gaps") == 0
    await publisher.publish(batch(stored(3), rank=0))
    await running.until(lambda: running.number("gaps") == 1)
    assert running.feeds.states()["r/dp1"] is State.IN_SEQUENCE


async def test_a_replay_brings_no_blocks_of_another_rank(publisher, running):
    await publisher.publish(batch(stored(1), rank=0))
    await running.until(lambda: running.holds(keys(1), "r/dp0") == 1)
    await publisher.publish(batch(stored(20), rank=1), lost=True)
    await publisher.publish(batch(stored(30), rank=0))
    await running.until(lambda: running.holds(keys(30), "r/dp0") == 1)
    assert running.holds(keys(20), "r/dp0") == 0


async def test_ranks_beyond_the_bound_are_dropped_and_counted(publisher):
    running = Running(settings(publisher, ranks_max=1))
    await running.connected()
    await publisher.publish(batch(stored(1), rank=0))
    await publisher.publish(batch(stored(2), rank=1), sequence=0)
    await running.until(lambda: running.number("ranks_dropped") == 1)
    assert set(running.feeds.states()) == {"r/dp0"} and running.holds(keys(2), "r/dp1") == 0
    await running.close()


class Labelled(IndexSink):
    """A sink that knows what is registered."""

    def __init__(self, index: Index) -> None:
        super().__init__(index)
        self.labels: dict[str, dict[str, str]] = {}

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None:
        self.labels[replica] = dict(labels)


async def test_the_labels_go_with_the_rank_that_takes_over(publisher):
    running = Running(settings(publisher, labels={"pool": "p"}))
    sink = running.feeds._sink = Labelled(running.index)
    await running.connected()
    assert sink.labels == {"r": {"pool": "p"}}
    await publisher.publish(batch(stored(1), rank=0))
    await running.until(lambda: running.holds(keys(1), "r/dp0") == 1)
    assert sink.labels == {"r": {}, "r/dp0": {"pool": "p"}}
    await running.close()


async def test_ranks_may_be_named_and_topics_chosen(publisher):
    running = Running(settings(publisher, ranks={"0": "alone"}, topic="kv@"))
    await running.connected()
    await publisher.publish(batch(stored(1), rank=0))
    await running.until(lambda: running.holds(keys(1), "alone") == 1)
    publisher.topic = b"other"
    await publisher.publish(batch(stored(2), rank=0))
    publisher.topic = b"kv@more"
    await publisher.publish(batch(stored(3), rank=0))
    await running.until(lambda: running.holds(keys(3), "alone") == 1)
    assert running.number("gaps") == 1
    await running.close()


async def test_a_restarted_service_goes_on_where_it_was(publisher, running):
    await publisher.publish(batch(stored(1, blocks=2)))
    await running.until(lambda: running.holds(keys(1, 2)) == 2)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(await running.feeds.state()))
    await running.close()
    await publisher.publish(batch(stored(3, parent=2)))
    await publisher.publish(batch(removed(1)))

    again = Running(settings(publisher), state=kept)
    again.index.ingest(Report(replica="r", model="m", tenant="t", scheme="s"), 0.0)
    await again.connected()
    await again.until(lambda: len(again.feeds.feed("t/m/r").sources()[None].mapping) == 2)
    assert publisher.asked[-1] == 0
    assert again.number("orphans") == 0
    found = again.index.exact(SCOPE, "", keys(1, 3)[2], 0.0)
    assert [held.replica for held in found] == ["r"]
    await again.close()


async def test_a_service_that_was_away_notices_that_the_engine_restarted(publisher, running):
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    kept = await running.feeds.state()
    await running.close()
    await publisher.close()
    other = Publisher(publisher.port, publisher.replay_port)
    await other.publish(batch(stored(9)))
    again = Running(settings(other), state=kept)
    await again.until(lambda: again.holds(keys(9)) == 1)
    assert again.number("restarts") == 1
    await again.close()
    await other.close()


@pytest.mark.parametrize("state", [{}, {"x": 1}, None])
async def test_a_state_that_is_none_is_left_out(publisher, state, caplog):
    place = "t\nm\ns\nr\n" + publisher.endpoint
    position = {"epoch": 0, "expected": 4, "digest": None, "lost": False}
    broken = {place: {"sources": [{"rank": None, "position": position, "mapping": {"lengths": b"x"}}]}}
    running = Running(settings(publisher), state=broken if state is None else state)
    await running.connected()
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    assert ("begins with nothing" in caplog.text) is (state is None)
    await running.close()


class Breaking(IndexSink):
    """A sink that fails for one replica, as long as it is told to."""

    broken = True

    def ingest(self, report: Report) -> object:
        if report.replica == "bad" and self.broken:
            raise RuntimeError("planted")
        return super().ingest(report)


async def test_a_feed_that_fails_stops_no_other_and_begins_anew(publisher, caplog):
    other = Publisher()
    running = Running(settings(publisher, "good"), settings(other, "bad"))
    sink = Breaking(running.index)
    running.feeds._sink = sink
    await running.connected(2)
    await other.publish(batch(stored(1)))
    await publisher.publish(batch(stored(2)))
    await running.until(lambda: running.feeds.numbers()["t/m/bad"]["faults"] >= 2)
    assert running.holds(keys(2), "good") == 1
    sink.broken = False
    await running.until(lambda: running.holds(keys(1), "bad") == 1)
    assert "begins anew" in caplog.text
    assert "RuntimeError: planted" in caplog.text
    await running.close()
    await other.close()


@pytest.mark.parametrize("sequence", [END_SEQUENCE, END_SEQUENCE - 1, 1 << 63])
async def test_what_is_no_sequence_moves_nothing_and_the_state_can_be_kept(publisher, sequence):
    running = Running(settings(publisher, replay_endpoint=None))
    await running.connected(0)
    await publisher.subscribed()
    await publisher.publish(batch(stored(1)), sequence=sequence)
    await publisher.publish(batch(stored(2)))
    await running.until(lambda: running.holds(keys(2)) == 1 and running.number("malformed") == 1)
    assert running.number("gaps") == 0
    assert msgspec.msgpack.encode(await running.feeds.state())
    await running.close()


async def test_many_feeds_have_their_sockets(publisher, monkeypatch):
    monkeypatch.setattr(module, "SOCKETS", 1)
    running = Running(*(settings(publisher, f"r{number}") for number in range(8)))
    await running.connected(8)
    assert sum(counted["faults"] for counted in running.feeds.numbers().values()) == 0
    await running.close()


async def test_two_feeds_of_one_replica_are_refused(publisher):
    with pytest.raises(ValueError, match="number 2 is of the same tenant, model and replica as number 1: t/m/r"):
        Feeds([settings(publisher), settings(publisher)], IndexSink(Index()))
    with pytest.raises(ValueError, match="invalid literal"):
        Feeds([settings(publisher, loras={"x": "y"})], IndexSink(Index()))


async def test_the_metrics_page_becomes_statistics_and_a_restart_seen_there_clears(publisher):
    asked, status = [100.0], [200]

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=PAGE.format(asked=asked[0]), status=status[0])

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    running = Running(settings(publisher, metrics_url=f"http://127.0.0.1:{port}/metrics", scrape_interval_s=0.05))
    await running.connected()
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1 and running.index.stats("t", "m", "r") is not None)
    assert running.index.stats("t", "m", "r")[0].pressure == 0.5
    status[0] = 500
    await running.until(lambda: running.number("scrapes_failed") > 0)
    publisher.buffer, publisher.sequence = [], 0
    status[0], asked[0] = 200, 3.0
    await running.until(lambda: running.number("restarts") == 1 and running.holds(keys(1)) == 0)
    await running.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("frames", "read"),
    [
        ([b"t", b"\x00" * 7 + b"\x05", b"p"], Message(5, b"p")),
        ([b"", b"t", b"\x00" * 7 + b"\x05", b"p"], Message(5, b"p")),
        ([b"", b"\xff" * 8, b""], Message(END_SEQUENCE, b"")),
        ([b"\x00" * 8, b"p"], None),
        ([b"t", b"\x00" * 7, b"p"], None),
        ([b"t"] * 5, None),
        ([], None),
    ],
)
def test_messages_are_recognised(frames, read):
    assert parse_message(frames) == read
