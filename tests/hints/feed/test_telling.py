"""What a feed logs: each change of its engine once, and never a line an event."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiohttp import web

from terraflow.hints.feed.machine import State
from terraflow.hints.feed.telling import LINE_EVERY_S, LINES_MAX, Telling
from tests.hints.feed.publisher import Publisher, batch, stored
from tests.hints.feed.running import PAGE, SCOPE, Running, keys, settings


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "terraflow.hints")
    return caplog


def lines(said: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [record.getMessage() for record in said.records if what in record.getMessage()]


async def _page(status: list[int]) -> tuple[web.AppRunner, str]:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=PAGE.format(asked=100.0), status=status[0])

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"


async def test_a_right_metrics_page_does_not_stand_for_a_wrong_endpoint(said):
    publisher, (runner, page) = Publisher(), await _page([200])

    async def hangs_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    other = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
    for endpoint in ("tcp://127.0.0.1:1", f"tcp://127.0.0.1:{other.sockets[0].getsockname()[1]}"):
        running = Running(settings(publisher, endpoint=endpoint, metrics_url=page, scrape_interval_s=0.05))
        await running.until(lambda running=running: running.feeds.states() == {"r": State.STALE})
        assert running.number("scrapes") > 0
        assert running.number("connects") == running.number("disconnects") == 0
        assert lines(said, "was never reached")[-1].endswith(f"no connection to {endpoint} for two heartbeats")
        await running.close()
    other.close()
    await runner.cleanup()
    await publisher.close()


@pytest.mark.parametrize("replays", [True, False])
async def test_an_engine_that_comes_late_is_in_sequence_with_its_first_batch(said, replays):
    before = Publisher()
    ports = before.port, before.replay_port
    running = Running(settings(before, **({} if replays else {"replay_endpoint": None})))
    await before.close()
    await running.until(lambda: running.feeds.states() == {"r": State.STALE})
    late = Publisher(*ports)
    await running.connected(replays=replays)
    await late.subscribed()
    await late.publish(batch(stored(1)))
    await running.until(lambda: running.feeds.states() == {"r": State.IN_SEQUENCE} and running.holds(keys(1)) == 1)
    assert lines(said, "healed") and not running.index.chain(SCOPE, "", keys(1), [2], 0.0)[0].degraded
    await running.close()
    await late.close()


async def test_each_change_of_an_engine_is_a_line_and_events_are_none(said):
    status = [200]
    publisher, (runner, page) = Publisher(), await _page(status)
    running = Running(settings(publisher, metrics_url=page, scrape_interval_s=0.05, stale_retry_s=1.0))
    await running.connected()
    for number in range(50):
        await publisher.publish(batch(stored(number)))
    await running.until(lambda: running.holds(keys(49)) == 1)
    quiet = len(said.records)
    assert [record.getMessage() for record in said.records] == [f"feed t/m/r: connected to {publisher.endpoint}"]

    status[0] = 503
    await running.until(lambda: running.number("scrapes_failed") > 4)
    assert lines(said, "its metrics page") == ["feed t/m/r: its metrics page (metrics_url) cannot be read: status 503"]
    status[0] = 200

    publisher.answers = False
    await publisher.publish(batch(stored(60)), lost=True)
    await publisher.publish(batch(stored(70)))
    await running.until(lambda: running.feeds.states() == {"r": State.STALE})
    assert len(lines(said, "a gap: events are missing, and the engine is asked")) == 1
    assert len(lines(said, "did not answer the replay")) == 3
    assert len(lines(said, "events are lost")) == 1
    publisher.answers = True
    await running.until(lambda: running.feeds.states() == {"r": State.IN_SEQUENCE})
    assert len(lines(said, "healed")) == 1 == len(lines(said, "metrics page is read again"))

    await publisher.close()
    await running.until(lambda: running.number("silences") == 1)
    assert len(lines(said, "connection to")) == 2 and len(lines(said, "the engine is lost")) == 1
    assert running.index.chain(SCOPE, "", keys(70), [2], 0.0)[0].degraded
    assert quiet < len(said.records) <= LINES_MAX
    await running.close()
    await runner.cleanup()


async def test_a_restart_is_told_and_a_missing_replay_endpoint_is_named(said):
    publisher = Publisher()
    running = Running(settings(publisher, replay_endpoint=None))
    await running.connected(replays=0)
    await publisher.subscribed()
    await publisher.publish(batch(stored(1)))
    await running.until(lambda: running.holds(keys(1)) == 1)
    publisher.sequence = 0
    await publisher.publish(batch(stored(5)))
    await running.until(lambda: running.number("restarts") == 1)
    assert len(lines(said, "the engine has restarted")) == 1
    await publisher.publish(batch(stored(6)), lost=True)
    await publisher.publish(batch(stored(7)))
    await running.until(lambda: running.feeds.states() == {"r": State.STALE})
    assert len(lines(said, "there is no replay_endpoint to ask")) == 1
    assert not lines(said, "did not answer")
    await running.close()
    await publisher.close()


def test_a_flapping_engine_writes_few_lines_and_says_how_many_were_left_out(said):
    now = [0.0]
    telling = Telling("feed f", lambda: now[0])
    for _ in range(1_000):
        telling.say(logging.INFO, "flap")
    assert len(said.records) == LINES_MAX
    now[0] += LINE_EVERY_S
    telling.say(logging.INFO, "flap")
    telling.say(logging.INFO, "flap")
    assert len(said.records) == LINES_MAX + 1
    assert said.records[-1].getMessage() == f"feed f: flap ({1_000 - LINES_MAX} lines of it were left out)"
