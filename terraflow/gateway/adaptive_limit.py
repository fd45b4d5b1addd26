"""How many may run at once, found from measured times. Pure: told the time and what was measured.

1. A window is closed by the sample that completes it; then the limit moves by `next_limit`, within its floor and
   ceiling. It starts at the ceiling: nothing is held back before something was measured to be too slow. What began
   before the last move says nothing of it, and is not counted.
2. The plane is measured by how many requests it works on itself (`PlaneLimit`): the seconds that requests spent inside
   but not waiting for a provider, over the seconds of the window, which by Little's law is their number. A provider's
   time, and so the length of an answer, is in no part of it. TCP Vegas bounds the same figure, the packets that wait
   on the way (Brakmo and Peterson, SIGCOMM 1994).
3. A capability is measured by how much longer it takes than when it was not crowded (`CapabilityLimit`): a stream by
   the time to its first chunk, a whole answer by its seconds a token, each against its own base. A short answer is not
   divided by less than `TOKENS_MIN`, so that what it waits for its first token does not look like slowness.
4. A base falls quickly. It rises only while the limit does not bite, or lies at its floor: what is slow there is slow
   by itself, and a model that has become slower must not be held at the floor.
"""

from __future__ import annotations

import math
from statistics import median

import msgspec

WINDOW_S = 0.1
"""Of the plane: some hundred requests at its full rate; from the floor to the ceiling takes three windows."""
SETTLE_MAX_S = 0.5
"""After a move the next window waits for what was inside before it, at most so long."""
CAPABILITY_WINDOW_S = 0.25
SAMPLES_MIN, SAMPLES_MAX = 8, 512
"""A median of fewer means nothing; one of more means the same."""
SAMPLES_AGE_S = 60.0
"""Samples that a window has not used within a minute tell of another time, and are dropped."""
CUT_MOST = 0.5
EASY, FAST_GROWTH = 0.6, 2.0
NEAR, GROWTH = 0.8, 1.25
"""Below this share of what may be measured a limit grows by this factor, far from the bound fast, near it slowly."""
USED = 0.8
"""Only a limit of which so much is used grows."""
TOLERANCE = 2.0
"""A capability may take twice as long as when it is not crowded: a full queue behind every slot."""
OVERLOADED_CUT = 0.7
"""What is left of the calls in flight when a provider says that they are too many."""
FALL, RISE, RISE_AT_FLOOR = 0.5, 0.05, 0.25
"""What the newest window counts in a base: below it, above it, and above it when the limit lies at its floor."""
TOKENS_MIN = 16


class LimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a limit."""

    floor: int
    ceiling: int


def next_limit(rule: LimitRule, limit: int, peak: int, excess: float) -> int:
    """The limit after a window in which `peak` ran at most, and what was measured was `excess` of what it may be."""
    if excess > 1:
        cut = int(min(limit, peak) * max(CUT_MOST, 1 / excess))
        return max(rule.floor, min(limit, cut))
    if excess < NEAR and peak >= USED * limit:
        return min(rule.ceiling, int(limit * (FAST_GROWTH if excess < EASY else GROWTH)) + 1)
    return limit


class PlaneLimit:
    """The plane's own limit; `working_max` is how many requests it may work on itself at a time."""

    __slots__ = ("_begun", "_own_s", "_peak", "_requests", "_rule", "_working_max", "limit")

    def __init__(self, rule: LimitRule, working_max: int) -> None:
        self.limit = rule.ceiling
        self._rule = rule
        self._working_max = working_max
        self._begun = 0.0
        self._own_s = 0.0
        self._requests = 0
        self._peak = 0

    def left(self, own_s: float, running: int, now: float) -> bool:
        """A request of `running` is done, and the plane itself kept it for `own_s`; whether the limit has moved."""
        window_s = now - self._begun
        if window_s < 0:
            return False
        self._own_s += own_s
        self._requests += 1
        if running > self._peak:
            self._peak = running
        if window_s < WINDOW_S or self._requests < SAMPLES_MIN:
            return False
        was, mean_s = self.limit, self._own_s / self._requests
        self.limit = next_limit(self._rule, was, self._peak, self._own_s / window_s / self._working_max)
        moved = self.limit != was
        self._begun = now + min(mean_s, SETTLE_MAX_S) if moved else now
        self._own_s, self._requests, self._peak = 0.0, 0, 0
        return moved


class _Track:
    """One kind of measurement: the samples of this window, and what they are when nothing is crowded."""

    __slots__ = ("base_s", "samples", "since")

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.since = 0.0
        self.base_s: float | None = None

    def add(self, sample: float, now: float) -> None:
        """One more, measured now."""
        if now - self.since > SAMPLES_AGE_S:
            self.samples.clear()
        if not self.samples:
            self.since = now
        if len(self.samples) < SAMPLES_MAX:
            self.samples.append(sample)

    def close(self, rise: float) -> float:
        """How much longer this window took than the base, which then follows; 1 without enough samples."""
        if len(self.samples) < SAMPLES_MIN:
            return 1.0
        now_s = median(self.samples)
        self.samples.clear()
        if self.base_s is None:
            self.base_s = now_s
        stretch = now_s / self.base_s if self.base_s > 0 else 1.0
        self.base_s += (now_s - self.base_s) * (FALL if now_s < self.base_s else rise)
        return stretch


class CapabilityLimit:
    """The limit of one capability's calls. Each sample names the instant in which its call was `started`."""

    __slots__ = ("_begun", "_moved", "_peak", "_rule", "_streams", "_whole", "limit")

    def __init__(self, rule: LimitRule, now: float) -> None:
        self.limit = rule.ceiling
        self._rule = rule
        self._begun = now
        self._moved = -math.inf
        self._peak = 0
        self._streams = _Track()
        self._whole = _Track()

    def began(self, started: float, in_flight: int, now: float) -> None:
        """A stream's first chunk came now."""
        self._told(self._streams, started, now - started, in_flight, now)

    def answered(self, started: float, output_tokens: int, in_flight: int, now: float) -> None:
        """A whole answer of so many tokens came now."""
        self._told(self._whole, started, (now - started) / max(TOKENS_MIN, output_tokens), in_flight, now)

    def overloaded(self, started: float, in_flight: int, now: float) -> None:
        """The provider said that it is given too much, or did not answer in time."""
        if started >= self._moved:
            cut = int(min(self.limit, in_flight) * OVERLOADED_CUT)
            self._move(max(self._rule.floor, min(self.limit, cut)), now)

    def _told(self, track: _Track, started: float, sample: float, in_flight: int, now: float) -> None:
        if started < self._moved:
            return
        track.add(sample, now)
        if in_flight > self._peak:
            self._peak = in_flight
        if now - self._begun < CAPABILITY_WINDOW_S or len(track.samples) < SAMPLES_MIN:
            return
        bites = self._peak >= USED * self.limit
        rise = RISE_AT_FLOOR if self.limit <= self._rule.floor else 0.0 if bites else RISE
        stretch = max(self._streams.close(rise), self._whole.close(rise))
        self._move(next_limit(self._rule, self.limit, self._peak, stretch / TOLERANCE), now)

    def _move(self, limit: int, now: float) -> None:
        if limit != self.limit:
            self.limit, self._moved = limit, now
            self._streams.samples.clear()
            self._whole.samples.clear()
        self._begun, self._peak = now, 0
