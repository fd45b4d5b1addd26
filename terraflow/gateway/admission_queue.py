"""Who runs, who waits and who is turned away: a data structure that is told the time.

1. At most `limit` requests run, and while anybody waits that many do. The limit moves (`set_limit`), never above
   `running_max`; what runs when it falls runs on.
2. A free place goes to the waiting tenants by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995). A request is
   charged the time for which it is expected to hold a place: the mean of its workload so far. So a tenant with long
   answers gets fewer places a second, and as many at a time, as one with short answers. Tokens would say what a model
   does; what is shared here is places, and a slow model holds one as long as a long answer does. Tenants that hold
   fewer places than their share now (the limit over the tenants that are here) come before those that hold more, so
   that who stays within its share waits for one place to become free, and not for a flood's turn as well.
3. Inside a tenant the order is the instant of arrival plus `age_s` for each step of priority: P0 goes before P1 that
   arrived less than `age_s` earlier. So nobody is overtaken by what arrives more than 3 × `age_s` later.
4. A tenant has at most `tenant_max` running and waiting, all together at most `waiting_max` waiting. Where there is no
   room, the last of the tenant's own order is given up, which may be the newcomer; where all is full, the last of the
   tenant with the most waiting, unless that is the newcomer's own.
5. A deadline is looked at on arrival, when a place is given, and by `sweep`. A request that could not have its place
   before its deadline, by rule 6, is shed on arrival.
6. Places are freed at the rate limit ÷ mean time in a place (Little's law), measured over the requests that left. From
   it come the expected wait and Retry-After; before anything has left, nothing is predicted.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import msgspec

QUANTUM_S = 1 / 16
"""What a tenant's turn adds to its credit: small, so that turns are short; rounds that serve nobody cost nothing."""
COST_FIRST_S = 1.0
"""The cost of a workload of which nothing is known."""
COST_MIN_S, COST_MAX_S = 0.001, 60.0
WORKLOADS_MAX = 4096
"""Workloads whose mean is remembered: those of a bundle, many times over."""
MEAN_SHARE = 0.1
"""What the newest request counts in a mean."""
RETRY_AFTER_MAX_S = 60
"""More than a minute is ignored by the vendors' libraries."""


class AdmissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of rules 1, 3 and 4."""

    running_max: int
    waiting_max: int
    tenant_max: int
    age_s: float = 5.0


class State(Enum):
    """Where a request stands."""

    WAITING = auto()
    RUNNING = auto()
    SHED = auto()
    TENANT_FULL = auto()
    TOO_LATE = auto()
    GONE = auto()


class Ticket:
    """One request at the door. `since` is when it got its place; `wake` belongs to whoever waits with it."""

    __slots__ = (
        "cost_s",
        "deadline",
        "number",
        "order",
        "retry_after_s",
        "since",
        "state",
        "tenant",
        "wake",
        "workload",
    )

    def __init__(self, tenant: str, workload: str, order: float, number: int, deadline: float, cost_s: float) -> None:
        self.tenant = tenant
        self.workload = workload
        self.order = order
        self.number = number
        self.deadline = deadline
        self.cost_s = cost_s
        self.since = 0.0
        self.state = State.WAITING
        self.retry_after_s: int | None = None
        self.wake: Any = None

    def __lt__(self, other: Ticket) -> bool:
        return (self.order, self.number) < (other.order, other.number)


class _Line:
    """A tenant's waiting requests in their order, and its credit."""

    __slots__ = ("credit_s", "tenant", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.credit_s = 0.0
        self.waiting: list[Ticket] = []


_NONE: Sequence[Ticket] = ()


class AdmissionQueue:
    """The door's state. Instants are monotonic seconds; every method returns the tickets of others that it moved out of
    WAITING, whom somebody must wake."""

    def __init__(self, rule: AdmissionRule) -> None:
        self.limit = self.ceiling = rule.running_max
        self.running = 0
        self.waiting = 0
        self._rule = rule
        self._by_tenant: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._lines: dict[str, _Line] = {}
        self._turns: deque[_Line] = deque()
        self._costs: dict[tuple[str, str], float] = {}
        self._hold_s: float | None = None
        self._arrivals = 0

    def arrive(
        self, tenant: str, workload: str, priority: int, deadline: float, now: float
    ) -> tuple[Ticket, Sequence[Ticket]]:
        """A request comes; its ticket says whether it runs, waits or is turned away. Whoever runs MUST `leave`, whoever
        waits and will wait no more MUST `withdraw`."""
        self._arrivals += 1
        cost_s = self._costs.get((tenant, workload), COST_FIRST_S)
        ticket = Ticket(tenant, workload, now + priority * self._rule.age_s, self._arrivals, deadline, cost_s)
        if not deadline > now:
            ticket.state = State.TOO_LATE
            return ticket, _NONE
        held = self._by_tenant.get(tenant, 0)
        if held < self._rule.tenant_max and self.running < self.limit and not self.waiting:
            self._by_tenant[tenant] = held + 1
            self._run(ticket, now)
            return ticket, _NONE
        return ticket, self._line_up(ticket, held, now)

    def full(self, tenant: str) -> int | None:
        """The Retry-After of a tenant whose next request would find no room, unless one of its own made it; None of any
        other."""
        line = self._lines.get(tenant)
        if self._by_tenant.get(tenant, 0) >= self._rule.tenant_max:
            return self._retry_after_s(State.TENANT_FULL, line)
        if self.waiting < self._rule.waiting_max or line is None or self._gives_up_for(line) is not None:
            return None
        return self._retry_after_s(State.SHED, line)

    def _line_up(self, ticket: Ticket, held: int, now: float) -> Sequence[Ticket]:
        line = self._lines.get(ticket.tenant)
        if now + self._expected_wait_s(line, ticket) > ticket.deadline:
            self._turn_away(ticket, State.SHED, line)
            return _NONE
        given_up: Sequence[Ticket] = _NONE
        if held >= self._rule.tenant_max:
            given_up = self._make_room(line, ticket, State.TENANT_FULL)
        elif self.waiting >= self._rule.waiting_max:
            longest = self._gives_up_for(line)
            if longest is None:
                given_up = self._make_room(line, ticket, State.SHED)
            else:
                given_up = self._give_up_last(longest, State.SHED)
        if ticket.state is not State.WAITING:
            return given_up
        line = self._lines.get(ticket.tenant)
        if line is None:
            line = self._lines[ticket.tenant] = _Line(ticket.tenant)
            self._turns.append(line)
        insort(line.waiting, ticket)
        self.waiting += 1
        _count(self._by_tenant, ticket.tenant, 1)
        return given_up

    def _gives_up_for(self, line: _Line | None) -> _Line | None:
        """Where all is full, the line that gives up its last for one more of this one; None: it is its own."""
        own = 0 if line is None else len(line.waiting)
        longest = max(self._turns, key=_length, default=None)
        return longest if longest is not None and len(longest.waiting) > own + 1 else None

    def _make_room(self, line: _Line | None, ticket: Ticket, why: State) -> Sequence[Ticket]:
        """Of the tenant's own waiting requests and the newcomer, the last in order is given up."""
        if line is None or not ticket < line.waiting[-1]:
            self._turn_away(ticket, why, line)
            return _NONE
        return self._give_up_last(line, why)

    def _give_up_last(self, line: _Line, why: State) -> Sequence[Ticket]:
        last = line.waiting[-1]
        self._turn_away(last, why, line)
        self._remove(last, len(line.waiting) - 1)
        return (last,)

    def _turn_away(self, ticket: Ticket, why: State, line: _Line | None) -> None:
        ticket.state = why
        ticket.retry_after_s = self._retry_after_s(why, line)

    def _retry_after_s(self, why: State, line: _Line | None) -> int:
        own = 0 if line is None else len(line.waiting)
        ahead = self.waiting if why is State.SHED else min(self.waiting, own * len(self._turns))
        return max(1, min(RETRY_AFTER_MAX_S, math.ceil(self._drain_s(ahead))))

    def leave(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        """A request gives its place back, and what it took of it is learnt. Idempotent."""
        if ticket.state is not State.RUNNING:
            return _NONE
        held_s = max(0.0, now - ticket.since)
        self._hold_s = held_s if self._hold_s is None else self._hold_s + (held_s - self._hold_s) * MEAN_SHARE
        key = (ticket.tenant, ticket.workload)
        mean_s = self._costs.get(key)
        if mean_s is None and len(self._costs) >= WORKLOADS_MAX:
            del self._costs[next(iter(self._costs))]
        mean_s = held_s if mean_s is None else mean_s + (held_s - mean_s) * MEAN_SHARE
        self._costs[key] = min(COST_MAX_S, max(COST_MIN_S, mean_s))
        return self._free(ticket, now)

    def withdraw(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        """A request waits no more, or does not want the place that it was just given. Idempotent."""
        if ticket.state is State.RUNNING:
            return self._free(ticket, now)
        if ticket.state is State.WAITING:
            ticket.state = State.GONE
            self._remove(ticket)
        return _NONE

    def set_limit(self, limit: int, now: float) -> Sequence[Ticket]:
        """Another limit, within 1 and `running_max`."""
        self.limit = max(1, min(self._rule.running_max, limit))
        return self._give_places(now)

    def sweep(self, now: float) -> Sequence[Ticket]:
        """Take out everybody whose deadline has passed."""
        late = [ticket for line in self._turns for ticket in line.waiting if ticket.deadline <= now]
        for ticket in late:
            ticket.state = State.TOO_LATE
            self._remove(ticket)
        return late

    def next_deadline(self) -> float | None:
        """The earliest deadline of those who wait."""
        return min((ticket.deadline for line in self._turns for ticket in line.waiting), default=None)

    def _free(self, ticket: Ticket, now: float) -> Sequence[Ticket]:
        ticket.state = State.GONE
        self.running -= 1
        _count(self._places, ticket.tenant, -1)
        _count(self._by_tenant, ticket.tenant, -1)
        return self._give_places(now) if self.waiting else _NONE

    def _give_places(self, now: float) -> Sequence[Ticket]:
        moved = []
        while self.waiting and self.running < self.limit:
            line = self._next_line()
            ticket = line.waiting[0]
            if ticket.deadline <= now:
                ticket.state = State.TOO_LATE
                self._remove(ticket, 0)
            else:
                line.credit_s -= ticket.cost_s
                self._remove(ticket, 0)
                _count(self._by_tenant, ticket.tenant, 1)
                self._run(ticket, now)
                if line.waiting and line.credit_s < line.waiting[0].cost_s:
                    self._turns.remove(line)
                    self._turns.append(line)
            moved.append(ticket)
        return moved

    def _run(self, ticket: Ticket, now: float) -> None:
        ticket.state, ticket.since = State.RUNNING, now
        self._places[ticket.tenant] = self._places.get(ticket.tenant, 0) + 1
        self.running += 1

    def _next_line(self) -> _Line:
        """The line whose turn it is and whose credit covers its first request: of those below their share, if any."""
        share, places = self.limit / len(self._by_tenant), self._places
        lines = [line for line in self._turns if places.get(line.tenant, 0) < share] or list(self._turns)
        while True:
            for line in lines:
                if line.credit_s >= line.waiting[0].cost_s:
                    return line
            # All the rounds that serve nobody, in one step.
            lacking_s = min(line.waiting[0].cost_s - line.credit_s for line in lines)
            rounds_s = math.ceil(lacking_s / QUANTUM_S) * QUANTUM_S
            for line in lines:
                line.credit_s += rounds_s

    def _remove(self, ticket: Ticket, at: int | None = None) -> None:
        """Out of its line; an empty line loses its turn and its credit."""
        line = self._lines[ticket.tenant]
        del line.waiting[bisect_left(line.waiting, ticket) if at is None else at]
        self.waiting -= 1
        _count(self._by_tenant, ticket.tenant, -1)
        if not line.waiting:
            del self._lines[ticket.tenant]
            self._turns.remove(line)

    def _expected_wait_s(self, line: _Line | None, ticket: Ticket) -> float:
        before = 0 if line is None else bisect_left(line.waiting, ticket)
        tenants = len(self._turns) + (line is None)
        return 0.0 if self._hold_s is None else self._drain_s(min(self.waiting, before * tenants + tenants - 1))

    def _drain_s(self, ahead: int) -> float:
        """How long until `ahead` requests and one more have their places."""
        return 0.0 if self._hold_s is None else (ahead + 1) * self._hold_s / self.limit


def _count(counts: dict[str, int], tenant: str, step: int) -> None:
    count = counts.get(tenant, 0) + step
    if count:
        counts[tenant] = count
    else:
        del counts[tenant]


def _length(line: _Line) -> int:
    return len(line.waiting)
