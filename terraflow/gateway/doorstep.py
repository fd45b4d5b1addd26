"""Before the door: how many requests begin in a turn of the loop, and who is sent away when they come faster than that.

A turn of the loop reads every socket on which something has come, and then does the work of all that was read. Without
a bound a flood makes the turn as long as the flood is, and what is inside already (an answer that came, a commit that
is done) waits for all of it. So, of the requests whose key is known:

1. In one turn `turn_max` go on at the most, and after a turn longer than `turn_s` `late_turn_max`: what is inside
   moves one turn at a time. The others wait on the step, and tenants take turns: who sends little goes on with the next
   turn, whatever others have there.
2. Nobody waits longer than `wait_s`, nor begins to wait who would by the pace of the last turns, unless it is the only
   one of its tenant. At most `waiting_max` wait; when there is no room, the tenant with the most there loses its
   oldest.
3. While there is a line, and for `late_s` after a long turn, whoever would find no room at the door does not go there:
   it is sent away here, which costs a fifth, and holds up nobody.
4. While the store is behind with what nobody waits for, nobody goes on, and who waits here is sent away: whoever is
   turned away later leaves a record there.
5. A shed here is before governance: a reply and a count, and no record. Its Retry-After is the door's where the door is
   full, else a second: who waited here was one turn among few.

`Lines` is told the time and decides; `Doorstep` has the clock and is called once a turn.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from terraflow.ports.runtime import Clock

RETRY_AFTER_S = 1
PACE_SHARE = 0.2
"""What the newest turn counts in the pace."""


class StepRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of rules 1 to 3. A request costs some 0.3 ms until it first waits for something: a turn of 16 is
    short beside a model's call. In a flood a whole processor makes turns of 1 to 5 ms."""

    turn_max: int = 16
    late_turn_max: int = 3
    waiting_max: int = 1024
    wait_s: float = 0.5
    turn_s: float = 0.01
    late_s: float = 0.1


class Waiting:
    """One request on the step, since an instant. `goes_on` is None while it waits; `wake` belongs to whoever waits."""

    __slots__ = ("goes_on", "since", "tenant", "wake")

    def __init__(self, tenant: str, since: float) -> None:
        self.tenant = tenant
        self.since = since
        self.goes_on: bool | None = None
        self.wake: Any = None


class Lines:
    """Who waits, by tenant; the first line's turn is next. Instants are monotonic seconds."""

    def __init__(self, rule: StepRule) -> None:
        self.waiting = 0
        self._rule = rule
        self._pace_s = 0.0
        self._lines: OrderedDict[str, deque[Waiting]] = OrderedDict()

    def hopeless(self, tenant: str) -> bool:
        """Whether a request that joined now would wait for too long: in each round one of every line goes on."""
        line = self._lines.get(tenant)
        return line is not None and len(line) * len(self._lines) * self._pace_s > self._rule.wait_s

    def join(self, tenant: str, now: float) -> tuple[Waiting, Waiting | None]:
        """A request waits; and who, if anybody, has to go for it."""
        gone = None
        if self.waiting >= self._rule.waiting_max:
            gone = self._take(max(self._lines, key=lambda name: len(self._lines[name])), goes_on=False)
        newcomer = Waiting(tenant, now)
        self._lines.setdefault(tenant, deque()).append(newcomer)
        self.waiting += 1
        return newcomer, gone

    def go_on(self, most: int, turn_s: float) -> list[Waiting]:
        """So many go on, if there are, after a turn that took so long."""
        going: list[Waiting] = []
        while self.waiting and len(going) < most:
            tenant = next(iter(self._lines))
            self._lines.move_to_end(tenant)
            going.append(self._take(tenant, goes_on=True))
        if going:
            self._pace_s += (turn_s / len(going) - self._pace_s) * PACE_SHARE
        return going

    def too_late(self, now: float) -> list[Waiting]:
        """Those that have waited for too long."""
        late: list[Waiting] = []
        for tenant, line in list(self._lines.items()):
            while line and now - line[0].since > self._rule.wait_s:
                late.append(self._take(tenant, goes_on=False))
        return late

    def withdraw(self, one: Waiting) -> None:
        """It waits no more. Idempotent."""
        if one.goes_on is None:
            self._lines[one.tenant].remove(one)
            one.goes_on = False
            self._left(one.tenant)

    def _take(self, tenant: str, *, goes_on: bool) -> Waiting:
        oldest = self._lines[tenant].popleft()
        oldest.goes_on = goes_on
        self._left(tenant)
        return oldest

    def _left(self, tenant: str) -> None:
        self.waiting -= 1
        if not self._lines[tenant]:
            del self._lines[tenant]


class Doorstep:
    """The step of one process, on its loop. `behind` is rule 4's question of the store, `full` rule 3's of the door:
    the seconds after which a tenant may find room, None if it would now."""

    def __init__(
        self, rule: StepRule, clock: Clock, *, behind: Callable[[], bool], full: Callable[[str], int | None]
    ) -> None:
        self._lines = Lines(rule)
        self._rule = rule
        self._most = rule.turn_max
        self._clock = clock
        self._behind = behind
        self._full = full
        self._begun = 0
        self._woken = 0
        self._late_until = -math.inf
        self._armed_at: float | None = None

    @property
    def waiting(self) -> int:
        """Requests on the step now, whoever they are of."""
        return self._lines.waiting

    async def pass_over(self, tenant: str) -> int | None:
        """Return when a request of this tenant may go on: None. Or it is shed: the seconds of its Retry-After."""
        if self._armed_at is None:
            self._arm()
        if self._behind():
            return RETRY_AFTER_S
        if self._lines.waiting or self._clock.monotonic() < self._late_until:
            retry_after_s = self._full(tenant)
            if retry_after_s is not None:
                return retry_after_s
        if self._begun < self._most and not self._lines.waiting:
            self._begun += 1
            return None
        return RETRY_AFTER_S if self._lines.hopeless(tenant) or not await self._wait(tenant) else None

    async def _wait(self, tenant: str) -> bool:
        one, gone = self._lines.join(tenant, self._clock.monotonic())
        if gone is not None:
            self._wake((gone,))
        one.wake = asyncio.get_running_loop().create_future()
        try:
            await one.wake
        finally:
            self._lines.withdraw(one)
        return one.goes_on is True

    def _arm(self) -> None:
        self._armed_at = self._clock.monotonic()
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Another turn of the loop has begun. Those that were woken in the last one begin in this one."""
        # First of all, so that a turn that breaks is not the last: the next request arms another.
        armed_at, self._armed_at = self._armed_at, None
        now = self._clock.monotonic()
        assert armed_at is not None
        turn_s = now - armed_at
        if turn_s > self._rule.turn_s:
            self._most, self._late_until = min(self._most, self._rule.late_turn_max), now + self._rule.late_s
        else:
            self._most = self._rule.turn_max
        self._begun, self._woken = self._woken, 0
        if self._lines.waiting:
            behind = self._behind()
            going = self._lines.go_on(0 if behind else self._most, turn_s)
            self._woken = len(going)
            self._wake(going)
            self._wake(self._lines.too_late(math.inf if behind else now))
        if self._begun or self._woken or self._lines.waiting:
            self._arm()

    @staticmethod
    def _wake(moved: Sequence[Waiting]) -> None:
        for one in moved:
            if not one.wake.done():
                one.wake.set_result(None)
