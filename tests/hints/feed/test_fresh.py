"""What an engine still holds does not run out of its TTL; what a lost engine held does."""

from tests.hints.feed.publisher import Publisher, batch, removed, stored
from tests.hints.feed.running import SCOPE, Running, keys, settings

TTL_S = 1800.0


async def test_what_is_held_for_hours_is_told_again():
    publisher = Publisher()
    running = Running(settings(publisher, fresh_s=0.05))
    await running.connected()
    await publisher.publish(batch(stored(1, blocks=3)))
    await running.until(lambda: running.holds(keys(1, 3)) == 3)
    await publisher.publish(batch(removed(3)))
    await running.until(lambda: running.holds(keys(1, 3)) == 2)
    for hour in range(1, 5):
        running.sink.now = hour * TTL_S * 0.9
        seen = running.sink.now
        await running.until(lambda seen=seen: min(row.seen_at for row in _rows(running)) == seen)
    assert running.holds(keys(1, 3)) == 2, "what was removed stays removed"
    await running.close()
    await publisher.close()


async def test_what_a_lost_engine_held_ages_out():
    publisher = Publisher()
    running = Running(settings(publisher, fresh_s=0.05))
    await running.connected()
    await publisher.publish(batch(stored(1, blocks=3)))
    await running.until(lambda: running.holds(keys(1, 3)) == 3)
    await publisher.close()
    await running.until(lambda: not all(running.feeds.connected().values()))
    await running.until(lambda: running.number("degraded") > 0)
    running.sink.now = TTL_S * 0.9
    feed = running.feeds.feed("t/m/r")
    assert feed is not None
    await feed.keep_fresh()
    running.sink.now = TTL_S + 1
    assert running.holds(keys(1, 3)) == 0
    await running.close()


def _rows(running):
    return running.index.chain(SCOPE, "", keys(1, 2), [2, 2], running.sink.now)
