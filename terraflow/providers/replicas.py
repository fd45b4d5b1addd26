"""The replicas of one fleet as its provider sees them: how busy each is, whether it rests, and which takes a call.

1. A replica that may not be reached is never chosen. One that rests, or on which this request has failed, is chosen
   only when there is no other; of those that rest, the one that has rested longest.
2. A hint's first replica that may be chosen takes the call: what is worth going for is the hint's to say (see
   `ports.hints`).
3. Without one, the prompt itself names two replicas (see `core.affinity`), and the less busy takes it; a prompt of
   which nothing is known goes to the least busy. Busy is counted in this capability's calls, which are known of every
   prompt and whether or not anybody is asked for hints; what tokens wait where is the hints' to weigh.
4. Whoever is chosen for its cache and is far busier than the least busy gives way to it: a cache that everybody wants
   must not become everybody's queue.
5. A replica rests when it cannot be reached, shows no sign of life when looked at (see `fleet`), or fails several times
   in a row, and longer each time. A success ends it, and so does its first sign of life where none was found before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import msgspec

from terraflow.core.affinity import member_of, two_named
from terraflow.ports.hints import Hint, Prefix
from terraflow.ports.upstream import Failure

AFFINITY_TOKENS = 1536
"""The part of a prompt by which it is recognised without a hint: beyond most system prompts, within most
conversations."""
BUSY_FACTOR = 2
BUSY_SLACK = 8
"""Rule 4: busier than twice the least busy, and by more than a few calls, which no queue is made of."""
REST_FIRST_S = 1.0
REST_MAX_S = 30.0
UNREACHED = (Failure.CONNECT, Failure.CUT_OFF, Failure.TIMEOUT)
"""Failures after which a replica is looked at: it may be gone, or hang."""
UNREACHED_REST_S = 10.0
"""How long such a replica rests, unless it shows a sign of life before."""

# fmt: off
FAULTS_MAX: dict[Failure, int] = {
    Failure.CONNECT:         1,
    Failure.CUT_OFF:         1,
    Failure.AUTHENTICATION:  1,
    Failure.MODEL_NOT_FOUND: 1,
    Failure.OVERLOADED:      3,
    Failure.RATE_LIMITED:    3,
    Failure.SERVER_ERROR:    3,
    Failure.MALFORMED:       3,
    Failure.TIMEOUT:         3,
}
# fmt: on
"""The failures that are a replica's own, and after how many faults in a row each makes it rest."""


class Door(Protocol):
    """What says whether a replica's address may be called."""

    permitted: bool


class Seat(msgspec.Struct):
    """One replica; instants are monotonic seconds."""

    id: str
    door: Door
    in_flight: int = 0
    faults: int = 0
    rests_until: float = 0.0

    def began(self) -> None:
        """A call is on its way."""
        self.in_flight += 1

    def ended(self) -> None:
        """It is over."""
        self.in_flight -= 1

    def succeeded(self) -> None:
        """It was answered."""
        self.faults, self.rests_until = 0, 0.0

    def silent(self, now: float) -> None:
        """It was looked at, and showed no sign of life."""
        self.rests_until = max(self.rests_until, now + UNREACHED_REST_S)

    def failed(self, failure: Failure, now: float, retry_after_s: float | None) -> None:
        """It failed by the replica's own fault, one of FAULTS_MAX."""
        self.faults += 1
        over = self.faults - FAULTS_MAX[failure]
        if over >= 0:
            first = UNREACHED_REST_S if failure in UNREACHED else REST_FIRST_S
            rest = max(first * 2 ** min(over, 5), retry_after_s or 0.0)
            self.rests_until = now + min(rest, REST_MAX_S)


def choose(seats: Sequence[Seat], hint: Hint | None, prefix: Prefix | None, failed: Sequence[str], now: float) -> int:
    """The place in `seats` of the one that takes the call; -1 when none may."""
    permitted = [at for at, seat in enumerate(seats) if seat.door.permitted]
    if not permitted:
        return -1
    able = [at for at in permitted if seats[at].rests_until <= now]
    fresh = [at for at in able if seats[at].id not in failed] if failed else able
    if not fresh:
        return _last_resort(seats, permitted, failed, now)
    if len(fresh) == 1:
        return fresh[0]
    least = min(seats[at].in_flight for at in fresh)
    bound = BUSY_FACTOR * least + BUSY_SLACK
    wanted = _hinted(seats, fresh, hint)
    if wanted < 0:
        wanted = _by_affinity(seats, fresh, prefix)
    if wanted >= 0 and seats[wanted].in_flight <= bound:
        return wanted
    return min(fresh, key=lambda at: seats[at].in_flight)


def another(seats: Sequence[Seat], but: Seat, failed: Sequence[str], now: float) -> bool:
    """Whether some other replica could take a call that has failed on `but` and on those of `failed`."""
    return any(
        seat is not but and seat.rests_until <= now and seat.id not in failed and seat.door.permitted for seat in seats
    )


def _last_resort(seats: Sequence[Seat], permitted: list[int], failed: Sequence[str], now: float) -> int:
    return min(permitted, key=lambda at: (seats[at].id in failed, max(seats[at].rests_until, now), seats[at].in_flight))


def _hinted(seats: Sequence[Seat], fresh: list[int], hint: Hint | None) -> int:
    if hint is None or not hint.ranked:
        return -1
    places = {seats[at].id: at for at in fresh}
    named = (places.get(member_of(ranked.replica, places)) for ranked in hint.ranked)
    return next((at for at in named if at is not None), -1)


def _by_affinity(seats: Sequence[Seat], fresh: list[int], prefix: Prefix | None) -> int:
    if prefix is None or not prefix.hashes:
        return -1
    last = len(prefix.hashes) - 1
    deep = (at for at, tokens in enumerate(accumulate(prefix.counts)) if tokens >= AFFINITY_TOKENS)
    known_by = prefix.hashes[min(next(deep, last), last)]
    one, other = two_named([seats[at].id for at in fresh], known_by)
    first, second = fresh[one], fresh[other]
    return second if seats[second].in_flight < seats[first].in_flight else first
