"""Streams that have nothing to send for a while, and must still show that they are alive.

1. A stream that has been silent for `interval_s` beats, and again after as long; a `tick_s` sooner or later.
2. Silence begins with the request, and anew with each event. What a beat is, its stream knows.
3. One task looks at all of them each tick: events cost a stream nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Self

from terraflow.gateway.faults import place_of
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.http")

TICK_S_MAX = 1.0


class Pulse:
    """The heartbeat of one stream, while its block runs. A context manager."""

    __slots__ = ("_heartbeats", "beat", "seen", "sent", "since")

    def __init__(self, heartbeats: Heartbeats, beat: Callable[[], None], sent: Callable[[], int]) -> None:
        self._heartbeats = heartbeats
        self.beat = beat
        self.sent = sent
        self.seen = 0
        self.since = 0.0

    def __enter__(self) -> Self:
        self.since = self._heartbeats.clock.monotonic()
        self._heartbeats.open.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.open.discard(self)


class Heartbeats:
    """The open streams of one process."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self.clock = clock
        self.open: set[Pulse] = set()
        self.tick_s = min(TICK_S_MAX, interval_s / 4)
        # An event is seen a tick after it was sent at the latest.
        self._silence_s = interval_s - self.tick_s

    def pulse(self, beat: Callable[[], None], sent: Callable[[], int]) -> Pulse:
        """The heartbeat of a stream. `beat` is called when it is due; `sent` says how many bytes of events have been
        sent. Neither may wait."""
        return Pulse(self, beat, sent)

    def sweep(self) -> None:
        """Look at every stream, and beat for those that are due."""
        now = self.clock.monotonic()
        for pulse in tuple(self.open):
            sent = pulse.sent()
            if sent != pulse.seen:
                pulse.seen, pulse.since = sent, now
            elif now - pulse.since >= self._silence_s:
                pulse.since = now + self.tick_s
                _beat(pulse)

    async def keep_beating(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.clock.sleep(self.tick_s)
            if self.open:
                self.sweep()


def _beat(pulse: Pulse) -> None:
    try:
        pulse.beat()
    except Exception as fault:
        log.error("a heartbeat failed: %s", place_of(fault))
