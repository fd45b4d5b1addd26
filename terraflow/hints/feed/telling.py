"""What is logged of an engine or a server elsewhere: a line for each thing that changes with it, never one an event.

1. A flapping engine, or one that misses an event a second, writes no more than `LINES_MAX` lines at once and one every
   `LINE_EVERY_S` after that; how many were left out stands in the next one.
2. Lines hold names and addresses of the settings, numbers, and a server's reason for a refusal: nothing that an engine
   has sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from terraflow.hints.feed.machine import State
from terraflow.hints.feed.stream import Stream

log = logging.getLogger("terraflow.hints")

LINES_MAX = 12
LINE_EVERY_S = 15.0
SHOWN_MAX = 300
"""Characters of another's words that a line shows."""


class Stood(NamedTuple):
    """What of a stream is told when it has changed."""

    state: State
    gaps: int
    restarts: int
    replays_failed: int
    silences: int
    degraded: bool


def stands(stream: Stream) -> Stood:
    """Where a stream is; cheap, since it is asked after every message."""
    counted = stream.counters
    return Stood(
        stream.state,
        counted.gaps,
        counted.restarts,
        counted.replays_failed,
        counted.silences,
        stream.degraded,
    )


def changes(before: Stood, now: Stood, asks: bool) -> Iterator[tuple[int, str]]:
    """The level and the words of each thing that has changed. `asks`: there is a replay endpoint."""
    if now.restarts > before.restarts:
        yield logging.WARNING, "the engine has restarted, and what it held is forgotten"
    if now.gaps > before.gaps:
        whom = "the engine is asked for them" if asks else "there is no replay_endpoint to ask for them"
        yield logging.WARNING, f"a gap: events are missing, and {whom}"
    if asks and now.replays_failed > before.replays_failed:
        yield logging.WARNING, "the engine did not answer the replay"
    if now.degraded and not before.degraded and now.silences == before.silences:
        yield logging.WARNING, "events are lost, and what its replica held counts for less until it heals"
    if before.degraded and not now.degraded:
        yield logging.INFO, "healed: what the index has of it is its cache"
    elif before.state is not now.state is State.IN_SEQUENCE and now.gaps > 0:
        yield logging.INFO, "in sequence again"


class Telling:
    """The lines of one feed, or of one server; each begins with who it is."""

    def __init__(self, who: str, now: Callable[[], float] = time.monotonic) -> None:
        self._who = who
        self._now = now
        self._lines = float(LINES_MAX)
        self._at = now()
        self._left_out = 0

    def say(self, level: int, said: str) -> None:
        """Log a line, or count it as left out (rule 1)."""
        now = self._now()
        self._lines = min(LINES_MAX, self._lines + (now - self._at) / LINE_EVERY_S)
        self._at = now
        if self._lines < 1:
            self._left_out += 1
            return
        self._lines -= 1
        more = f" ({self._left_out} lines of it were left out)" if self._left_out else ""
        self._left_out = 0
        log.log(level, "%s: %s%s", self._who, said, more)
