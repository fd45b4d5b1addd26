"""In-flight calls of each capability, against the limit of its definition and the one that its answers' times show.

1. A capability has room while both limits have. One without a limit in its definition has that of its times alone.
2. A slot taken is given back exactly once, and goes to whoever waited longest, if there is room; waiting ends at the
   caller's deadline.
3. What is remembered of a capability's times is forgotten with `CAPABILITIES_MAX` others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from terraflow.gateway.adaptive_limit import CapabilityLimit, LimitRule
from terraflow.ports.runtime import Clock

CAPABILITIES_MAX = 1024
"""Many times those of a bundle."""

_Waiting = tuple[asyncio.Future[None], int | None]
"""What is resolved when a slot is given, and the definition's limit."""


class Slots(NamedTuple):
    """How it stands with one capability: calls in flight, callers that wait for one of them to end, how many may be in
    flight now, and how many at the most."""

    taken: int
    waiting: int
    limit: int
    ceiling: int


class Capacity:
    """Slots of one process, keyed by capability id."""

    def __init__(self, rule: LimitRule, clock: Clock) -> None:
        self._rule = rule
        self._clock = clock
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._limits: dict[str, CapabilityLimit] = {}

    def free(self, capability: str, limit: int | None) -> int | None:
        """How many more calls fit; None when nothing limits them."""
        most = self._most(capability, limit)
        return None if most is None else max(0, most - self._taken.get(capability, 0))

    def slots(self, capability: str, limit: int | None) -> Slots:
        """How it stands now; one without a limit in its definition has the rule's ceiling."""
        ceiling = self._rule.ceiling if limit is None else min(limit, self._rule.ceiling)
        most = self._most(capability, limit)
        waiting = sum(not turn.done() for turn, _ in self._waiting.get(capability, ()))
        return Slots(self._taken.get(capability, 0), waiting, ceiling if most is None else min(most, ceiling), ceiling)

    def try_take(self, capability: str, limit: int | None) -> bool:
        """Take a slot if one is free."""
        taken = self._taken.get(capability, 0)
        most = self._most(capability, limit)
        if most is not None and taken >= most:
            return False
        self._taken[capability] = taken + 1
        return True

    async def take(self, capability: str, limit: int | None, timeout_s: float) -> bool:
        """Take a slot, waiting at most `timeout_s`; False when the time ran out."""
        if self.try_take(capability, limit):
            return True
        if timeout_s <= 0:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(capability, deque()).append((turn, limit))
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as left:
            if turn.done() and not turn.cancelled():
                self.give_back(capability)
            else:
                self._forget(capability, (turn, limit))
            if isinstance(left, TimeoutError):
                return False
            raise
        return True

    def give_back(self, capability: str) -> None:
        """Free the slot, and let in whom there is room for."""
        left = self._taken[capability] - 1
        if left:
            self._taken[capability] = left
        else:
            del self._taken[capability]
        if capability in self._waiting:
            self._let_in(capability)

    def began(self, capability: str, started: float) -> None:
        """A stream that was asked for at monotonic second `started` gave its first chunk; its slot is still taken."""
        now = self._clock.monotonic()
        self._measured(capability, now).began(started, self._taken.get(capability, 0), now)
        # The limit may have risen, and the next slot may be given back only when a long stream ends.
        if capability in self._waiting:
            self._let_in(capability)

    def answered(self, capability: str, started: float, output_tokens: int) -> None:
        """A whole answer came; its slot is still taken."""
        now = self._clock.monotonic()
        self._measured(capability, now).answered(started, output_tokens, self._taken.get(capability, 0), now)

    def overloaded(self, capability: str, started: float) -> None:
        """A call failed because its provider has too much to do; its slot is still taken."""
        now = self._clock.monotonic()
        self._measured(capability, now).overloaded(started, self._taken.get(capability, 0), now)

    def _measured(self, capability: str, now: float) -> CapabilityLimit:
        found = self._limits.get(capability)
        if found is None:
            if len(self._limits) >= CAPABILITIES_MAX:
                del self._limits[next(iter(self._limits))]
            found = self._limits[capability] = CapabilityLimit(self._rule, now)
        return found

    def _most(self, capability: str, limit: int | None) -> int | None:
        measured = self._limits.get(capability)
        if measured is None or measured.limit >= self._rule.ceiling:
            return limit
        return measured.limit if limit is None else min(limit, measured.limit)

    def _let_in(self, capability: str) -> None:
        queue = self._waiting[capability]
        while queue:
            turn, limit = queue[0]
            if not turn.done():
                if not self.try_take(capability, limit):
                    return
                turn.set_result(None)
            queue.popleft()
        del self._waiting[capability]

    def _forget(self, capability: str, waiting: _Waiting) -> None:
        queue = self._waiting.get(capability)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._waiting[capability]
