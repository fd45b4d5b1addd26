"""Streams that have nothing to send for a while, and must still show that they are alive.

1. A stream that has been silent for `interval_s` beats, and again after as long; at most a `tick_s` late.
2. Silence begins with the request, and anew with each event. What a beat is, its stream knows.
3. One task beats for all: an event costs a stream one reading of the clock.
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

    __slots__ = ("_heartbeats", "beat", "since")

    def __init__(self, heartbeats: Heartbeats, beat: Callable[[], None]) -> None:
        self._heartbeats = heartbeats
        self.beat = beat
        self.since = 0.0

    def __enter__(self) -> Self:
        self.sent()
        self._heartbeats.open.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.open.discard(self)

    def sent(self) -> None:
        """The stream has sent something."""
        self.since = self._heartbeats.clock.monotonic()


class Heartbeats:
    """The open streams of one process."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self.clock = clock
        self.open: set[Pulse] = set()
        self._interval_s = interval_s
        self.tick_s = min(TICK_S_MAX, interval_s / 4)

    def pulse(self, beat: Callable[[], None]) -> Pulse:
        """The heartbeat of a stream; `beat` is called when it is due, and must not wait."""
        return Pulse(self, beat)

    def sweep(self) -> None:
        """Beat for every stream that is due."""
        now = self.clock.monotonic()
        for pulse in [pulse for pulse in self.open if now - pulse.since >= self._interval_s]:
            pulse.since = now
            try:
                pulse.beat()
            except Exception as fault:
                log.error("a heartbeat failed: %s", place_of(fault))

    async def keep_beating(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.clock.sleep(self.tick_s)
            if self.open:
                self.sweep()
