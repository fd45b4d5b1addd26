"""What was routed and is still in flight: which replica is busy, and who will soon hold what was just sent.

1. It knows what our own side routed; no replica has to report anything for it. Off when the service stands alone.
2. Bounded: the oldest request is forgotten when there are too many, and each after `flight_max_s`.
3. A request's leading blocks count as held by its replica from when it is sent until `linger_s` after it ended, and
   never longer than `hold_max_s`; a request that ended without having been worked on holds nothing. What a replica has
   reported by then speaks for itself.
4. A block hash stands for its block and all before it, so that some depths of a chain are enough to remember: each of
   the first sixty-four, then every one a sixteenth deeper, and the last. What replicas are told to hold may so be a
   sixteenth too short.
5. Load is the tokens in flight that a replica did not hold yet, and a tenth of those that ended lately, of which half
   is forgotten every ten minutes: the first keeps queues short, the second evens out what queues do not show.
6. A match gives way to a less loaded replica when that costs less, in tokens to wait for and to prefill. Of a prefix
   that others were just sent with, a shared prompt, a token saved counts once, because the other replica will hold it
   from then on. Of one that nobody else has, a conversation, it counts sixteen times, as its next turns would move too.
   A small difference moves neither, so that a burst of one prefix stays together. Nothing moves to a replica that is as
   busy: why it ranks behind, as one whose engine is lost, is not this memory's to judge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from terraflow.core.affinity import member_of, two_named
from terraflow.hints.words import BLOCKS_MAX, Held, Scope, Tier

REQUESTS_MAX = 4_096
MARKS_MAX = 1 << 17
SCOPES_MAX = 1_024
LOADS_MAX = 8_192
FLIGHT_MAX_S = 600.0
HOLD_MAX_S = 60.0
LINGER_S = 2.0
LATELY_HALF_S = 600.0
LATELY_WEIGHT = 0.1
SHARED_BY = 2
"""So many others of a replica with the same prefix, in flight or lingering, make it a shared prompt."""
_SHARED = (1, 768)
_CONVERSATION = (16, 65_536)
"""What a matched token is worth, and what a move costs beside, in tokens of load; see rule 6."""


def _depths() -> tuple[int, ...]:
    depths = list(range(1, 65))
    while depths[-1] < BLOCKS_MAX:
        depths.append(depths[-1] + depths[-1] // 16)
    return tuple(depths)


DEPTHS = _depths()
"""How many leading blocks the remembered prefixes have."""


class Match(NamedTuple):
    """A replica that holds a request's leading blocks."""

    replica: str
    blocks: int
    tokens: int


class _Key(NamedTuple):
    scope: Scope
    adapter: str
    replica: str
    last: bytes
    """The hash of the whole chain; empty for a request without one."""


class _Flight(msgspec.Struct, eq=False):
    key: _Key
    marks: Sequence[bytes]
    """The hashes that count as held by its replica; none any more, once it was let go."""
    tokens: int
    sent_at: float


class _Load(msgspec.Struct):
    requests: int = 0
    tokens: int = 0
    lately: float = 0.0
    at: float = 0.0

    def fade(self, now: float) -> float:
        if now > self.at:
            self.lately *= 0.5 ** ((now - self.at) / LATELY_HALF_S)
            self.at = now
        return self.lately


class Assigned:
    """The assignment memory of one process. All times are monotonic seconds."""

    def __init__(
        self,
        *,
        requests_max: int = REQUESTS_MAX,
        marks_max: int = MARKS_MAX,
        flight_max_s: float = FLIGHT_MAX_S,
        hold_max_s: float = HOLD_MAX_S,
        linger_s: float = LINGER_S,
    ) -> None:
        self._requests_max = requests_max
        self._marks_max = marks_max
        self._marks = 0
        self._flight_max_s = flight_max_s
        self._hold_max_s = hold_max_s
        self._linger_s = linger_s
        self._members: dict[Scope, tuple[str, ...]] = {}
        self._loads: dict[tuple[Scope, str], _Load] = {}
        self._holders: dict[tuple[Scope, str], dict[bytes, dict[str, int]]] = {}
        self._flying: dict[_Key, deque[_Flight]] = {}
        self._sent: dict[int, _Flight] = {}
        self._holding: deque[_Flight] = deque()
        self._lingering: deque[tuple[float, _Flight]] = deque()

    # Who there is

    def join(self, scope: Scope, replicas: Iterable[str]) -> None:
        """The replicas of a fleet, also those that have reported nothing yet; none takes the fleet back."""
        self._members.pop(scope, None)
        if named := tuple(sorted(set(replicas))):
            if len(self._members) >= SCOPES_MAX:
                del self._members[next(iter(self._members))]
            self._members[scope] = named

    def members(self, scope: Scope) -> tuple[str, ...]:
        """Who joined, sorted."""
        return self._members.get(scope, ())

    # What is routed

    def sent(self, scope: Scope, adapter: str, replica: str, hashes: Sequence[bytes], tokens: int, now: float) -> None:
        """A request was just sent to `replica`.

        `tokens`: those of its prompt that the replica is not known to hold, which is what it has to prefill.
        """
        self._expire(now)
        while len(self._sent) >= self._requests_max:
            self._land(next(iter(self._sent.values())), now)
        depth = len(hashes)
        marks = [hashes[at - 1] for at in DEPTHS[: bisect_left(DEPTHS, depth)]]
        marks.extend(hashes[-1:])
        key = _Key(scope, adapter, replica, hashes[-1] if depth else b"")
        flight = _Flight(key, marks, max(0, tokens), now)
        while self._holding and (len(self._holding) >= 4 * self._requests_max or self._marks >= self._marks_max):
            self._let_go(self._holding.popleft())
        self._sent[id(flight)] = flight
        self._flying.setdefault(key, deque()).append(flight)
        self._holding.append(flight)
        self._marks += len(marks)
        holders = self._holders.setdefault((scope, adapter), {}) if marks else {}
        for mark in marks:
            by = holders.setdefault(mark, {})
            by[replica] = by.get(replica, 0) + 1
        load = self._load(scope, replica)
        load.requests += 1
        load.tokens += flight.tokens

    def ended(self, scope: Scope, adapter: str, replica: str, hashes: Sequence[bytes], held: bool, now: float) -> None:
        """The oldest such request ended; `held`: the replica worked on it, and so holds its blocks."""
        self._expire(now)
        flying = self._flying.get(_Key(scope, adapter, replica, hashes[-1] if hashes else b""))
        if not flying:
            return
        flight = flying[0]
        self._land(flight, now)
        if held:
            self._lingering.append((now + self._linger_s, flight))
        else:
            self._let_go(flight)

    def lost(self, tenant: str, model: str, replica: str) -> None:
        """What it held is gone: nothing that was sent there counts as held any more. What is in flight stays so."""
        for flight in self._holding:
            scope = flight.key.scope
            if flight.key.replica == replica and scope.model == model and scope.tenant == tenant:
                self._let_go(flight)

    # What follows from it

    def load(self, scope: Scope, replica: str, now: float) -> float:
        """How busy a replica is, in tokens, a rank as its engine; see rule 5."""
        load = self._loads.get((scope, replica)) or self._loads.get((scope, member_of(replica, self.members(scope))))
        return load.tokens + LATELY_WEIGHT * load.fade(now) if load is not None else 0.0

    def in_flight(self, scope: Scope, replica: str) -> int:
        """Requests that were sent there and have not ended."""
        load = self._loads.get((scope, replica))
        return load.requests if load is not None else 0

    def named(self, scope: Scope, replicas: Sequence[str], known_by: bytes, now: float) -> str:
        """The less loaded of the two that a prompt names, of one replica at least."""
        first, second = two_named(replicas, known_by)
        return self.lesser(scope, replicas[first], replicas[second], now)

    def lesser(self, scope: Scope, first: str, second: str, now: float) -> str:
        """The less loaded of two; the first when they are equal."""
        self._expire(now)
        return second if self.load(scope, second, now) < self.load(scope, first, now) else first

    def held(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], counts: Sequence[int], now: float
    ) -> list[Held]:
        """Which replicas were just sent requests with a leading run of these blocks; see rule 4."""
        self._expire(now)
        holders = self._holders.get((scope, adapter))
        if not holders or not hashes:
            return []
        depth = len(hashes)
        found: list[tuple[int, dict[str, int]]] = []
        for at in DEPTHS:
            if at > depth or (by := holders.get(hashes[at - 1])) is None:
                break
            found.append((at, by))
        if (by := holders.get(hashes[-1])) is not None:
            found.append((depth, by))
        deepest: dict[str, int] = {}
        for at, by in reversed(found):
            for replica in by:
                deepest.setdefault(replica, at)
            if len(deepest) == len(found[0][1]):
                break
        tokens = {blocks: sum(counts[:blocks]) for blocks in set(deepest.values())}
        return [Held(replica, blocks, tokens[blocks], now, Tier.MEMORY, False) for replica, blocks in deepest.items()]

    def preferred(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], matches: Sequence[Match], other: str, now: float
    ) -> str:
        """Which replica is to serve a request: one of those that match, best first, or one `other`; see rule 6."""
        self._expire(now)
        best = matches[0]
        depth = DEPTHS[bisect_right(DEPTHS, min(best.blocks, len(hashes))) - 1] if best.blocks and hashes else 0
        holders = self._holders.get((scope, adapter), {})
        by = holders.get(hashes[depth - 1], {}) if depth else {}
        sharing = by.get(member_of(best.replica, by), 0)
        worth, step = _SHARED if sharing >= SHARED_BY else _CONVERSATION
        longest = max(match.tokens for match in matches)
        others = matches if any(match.replica == other for match in matches) else (*matches, Match(other, 0, 0))
        loads = [self.load(scope, match.replica, now) for match in others]
        costs = [
            (load - worth * match.tokens + (step if match.tokens < longest else 0), at)
            for at, (match, load) in enumerate(zip(others, loads, strict=True))
            if not at or load < loads[0]
        ]
        return others[min(costs)[1]].replica

    # Forgetting

    def _load(self, scope: Scope, replica: str) -> _Load:
        load = self._loads.pop((scope, replica), None) or _Load()
        if len(self._loads) >= LOADS_MAX:
            idle = next((name for name, other in self._loads.items() if not other.requests), None)
            del self._loads[idle if idle is not None else next(iter(self._loads))]
        self._loads[scope, replica] = load
        return load

    def _expire(self, now: float) -> None:
        while self._lingering and self._lingering[0][0] <= now:
            self._let_go(self._lingering.popleft()[1])
        while self._holding and self._holding[0].sent_at + self._hold_max_s <= now:
            self._let_go(self._holding.popleft())
        while self._sent and (flight := next(iter(self._sent.values()))).sent_at + self._flight_max_s <= now:
            self._land(flight, now)
            self._let_go(flight)

    def _land(self, flight: _Flight, now: float) -> None:
        """It is in flight no more."""
        if self._sent.pop(id(flight), None) is None:
            return
        key = flight.key
        flying = self._flying[key]
        flying.remove(flight)
        if not flying:
            del self._flying[key]
        load = self._loads.get((key.scope, key.replica))
        if load is not None:
            load.requests = max(0, load.requests - 1)
            load.tokens = max(0, load.tokens - flight.tokens)
            load.lately = load.fade(now) + flight.tokens

    def _let_go(self, flight: _Flight) -> None:
        """Its blocks count as held no more."""
        if not flight.marks:
            return
        scope, adapter, replica, _ = flight.key
        holders = self._holders[scope, adapter]
        for mark in flight.marks:
            by = holders[mark]
            by[replica] -= 1
            if not by[replica]:
                del by[replica]
                if not by:
                    del holders[mark]
        if not holders:
            del self._holders[scope, adapter]
        self._marks -= len(flight.marks)
        flight.marks = ()
