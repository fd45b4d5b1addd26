"""When a silent stream beats, by a clock that the test sets."""

from __future__ import annotations

import asyncio

import pytest

from terraflow.gateway.heartbeats import TICK_S_MAX, Heartbeats
from tests.storage.makers import SetClock


class Beats:
    """Heartbeats of one stream, fifteen seconds apart, and when they came."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.heartbeats = Heartbeats(self.clock, 15)
        self.came: list[float] = []
        self.sent = 0
        self._begun = self.clock.monotonic()
        self.pulse = self.heartbeats.pulse(lambda: self.came.append(self.elapsed), lambda: self.sent)

    @property
    def elapsed(self) -> float:
        return self.clock.monotonic() - self._begun

    def run(self, seconds: float) -> None:
        """Let time pass, swept as the task does."""
        ends = self.elapsed + seconds
        while self.elapsed < ends:
            self.clock.time += int(self.heartbeats.tick_s * 1e6)
            self.heartbeats.sweep()


def test_silence_beats_at_each_interval() -> None:
    beats = Beats()
    with beats.pulse:
        beats.run(13)
        assert beats.came == []
        beats.run(47)
    assert beats.came == [14, 29, 44, 59]


def test_each_event_begins_silence_anew() -> None:
    beats = Beats()
    with beats.pulse:
        for _ in range(10):
            beats.run(13)
            beats.sent += 1
        assert beats.came == []
        beats.run(30)
    assert beats.came == [145, 160], "the last event was sent at 130, and seen at 131"


def test_what_has_ended_beats_no_more() -> None:
    beats = Beats()
    with pytest.raises(ValueError), beats.pulse:
        raise ValueError
    beats.run(60)
    assert beats.came == [] and not beats.heartbeats.open


def test_one_that_fails_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats()

    def fail() -> None:
        raise ValueError("a secret of the stream")

    def nothing() -> int:
        return 0

    with beats.heartbeats.pulse(fail, nothing), beats.pulse, beats.heartbeats.pulse(fail, nothing):
        beats.run(15)
    assert beats.came == [14]
    assert "a heartbeat failed" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize(("interval_s", "tick_s"), [(1, 0.25), (15, TICK_S_MAX), (600, TICK_S_MAX)])
def test_a_tick_is_a_second_or_less(interval_s: int, tick_s: float) -> None:
    assert Heartbeats(SetClock(), interval_s).tick_s == tick_s <= interval_s / 4


async def test_the_task_sweeps_each_tick() -> None:
    beats, enough = Beats(), asyncio.Event()

    def beat() -> None:
        beats.came.append(beats.elapsed)
        if len(beats.came) == 3:
            enough.set()

    with beats.heartbeats.pulse(beat, lambda: 0):
        task = asyncio.create_task(beats.heartbeats.keep_beating())
        await enough.wait()
        task.cancel()
    assert beats.came == [14, 29, 44]
