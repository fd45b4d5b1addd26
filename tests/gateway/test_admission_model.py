"""The door against a model of it: plain lists, sorted and searched each time, one turn of the round robin after the
other. After every step both have the same requests running, waiting and turned away."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from terraflow.gateway.admission_queue import QUANTUM_S, AdmissionQueue, AdmissionRule, State, Ticket

TENANTS = ("a", "b", "c")
COSTS = {"a": 0.25, "b": 1.0, "c": 3.5}
RUNNING_MAX, WAITING_MAX, TENANT_MAX, AGE_S = 4, 7, 5, 2.0


class Model:
    """Rules 1 to 5 of the door, written out."""

    def __init__(self) -> None:
        self.limit = RUNNING_MAX
        self.state: dict[int, State] = {}
        self.who: dict[int, tuple[str, float, float]] = {}
        self.turns: list[str] = []
        self.credit: dict[str, Fraction] = {}

    def those(self, state: State, tenant: str | None = None) -> list[int]:
        return [n for n, s in self.state.items() if s is state and tenant in (None, self.who[n][0])]

    def line(self, tenant: str) -> list[int]:
        return sorted(self.those(State.WAITING, tenant), key=lambda n: (self.who[n][1], n))

    def arrive(self, number: int, tenant: str, order: float, deadline: float, now: float) -> None:
        self.who[number] = (tenant, order, deadline)
        held = len(self.those(State.RUNNING, tenant) + self.those(State.WAITING, tenant))
        waiting = self.those(State.WAITING)
        if deadline <= now:
            self.state[number] = State.TOO_LATE
            return
        self.state[number] = State.WAITING
        if tenant not in self.turns:
            self.turns.append(tenant)
            self.credit[tenant] = Fraction(0)
        if held >= TENANT_MAX:
            self.state[self.line(tenant)[-1]] = State.TENANT_FULL
        elif len(waiting) >= WAITING_MAX:
            longest = max(self.turns, key=lambda t: len(self.line(t)) - (t == tenant))
            own = len(self.line(tenant)) - 1
            victim = longest if longest != tenant and len(self.line(longest)) > own + 1 else tenant
            self.state[self.line(victim)[-1]] = State.SHED
        self.forget_empty()
        self.fill(now)

    def leave(self, number: int, now: float) -> None:
        self.state[number] = State.GONE
        self.forget_empty()
        self.fill(now)

    def sweep(self, now: float) -> None:
        for number in self.those(State.WAITING):
            if self.who[number][2] <= now:
                self.state[number] = State.TOO_LATE
        self.forget_empty()

    def forget_empty(self) -> None:
        self.turns = [tenant for tenant in self.turns if self.line(tenant)]

    def fill(self, now: float) -> None:
        while self.turns and len(self.those(State.RUNNING)) < self.limit:
            here = {self.who[n][0] for state in (State.RUNNING, State.WAITING) for n in self.those(state)}
            share = Fraction(self.limit, len(here))
            below = [t for t in self.turns if len(self.those(State.RUNNING, t)) < share] or self.turns
            ready = [t for t in below if self.credit[t] >= COSTS[t]]
            if not ready:
                for tenant in below:
                    self.credit[tenant] += Fraction(QUANTUM_S)
                continue
            tenant = ready[0]
            first = self.line(tenant)[0]
            if self.who[first][2] <= now:
                self.state[first] = State.TOO_LATE
            else:
                self.credit[tenant] -= Fraction(COSTS[tenant])
                self.state[first] = State.RUNNING
                if self.credit[tenant] < COSTS[tenant]:
                    self.turns = [*(t for t in self.turns if t != tenant), tenant]
            self.forget_empty()


class Door(RuleBasedStateMachine):
    """The same steps for both."""

    def __init__(self) -> None:
        super().__init__()
        made = AdmissionRule(running_max=RUNNING_MAX, waiting_max=WAITING_MAX, tenant_max=TENANT_MAX, age_s=AGE_S)
        self.door, self.model, self.now = AdmissionQueue(made), Model(), 0.0
        self.tickets: dict[int, Ticket] = {}
        for tenant, cost_s in COSTS.items():
            self.door.leave(self.door.arrive(tenant, "w", 0, 1.0, 0.0)[0], cost_s)
        # What a place is held for is known, when it will be free is not: nothing is shed early.
        self.door._hold_s = None

    @rule(tenant=st.sampled_from(TENANTS), priority=st.integers(0, 3), left_s=st.sampled_from([0.0, 0.5, 2.0, 99.0]))
    def arrive(self, tenant: str, priority: int, left_s: float) -> None:
        ticket, _ = self.door.arrive(tenant, "w", priority, self.now + left_s, self.now)
        self.tickets[ticket.number] = ticket
        self.model.arrive(ticket.number, tenant, self.now + priority * AGE_S, self.now + left_s, self.now)

    @precondition(lambda self: self.door.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self._go(data, State.RUNNING)

    @precondition(lambda self: self.door.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self._go(data, State.WAITING)

    def _go(self, data: st.DataObject, state: State) -> None:
        number = data.draw(st.sampled_from([n for n, ticket in self.tickets.items() if ticket.state is state]))
        self.door.withdraw(self.tickets[number], self.now)
        self.model.leave(number, self.now)

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        self.door.sweep(self.now)
        self.model.sweep(self.now)

    @rule(limit=st.integers(1, RUNNING_MAX))
    def set_limit(self, limit: int) -> None:
        self.door.set_limit(limit, self.now)
        self.model.limit = limit
        self.model.fill(self.now)

    @invariant()
    def the_same_requests_run_wait_and_were_turned_away(self) -> None:
        assert {n: ticket.state for n, ticket in self.tickets.items()} == self.model.state

    @invariant()
    def the_counts_are_right_and_no_place_is_free_while_anybody_waits(self) -> None:
        states = [ticket.state for ticket in self.tickets.values()]
        assert (self.door.running, self.door.waiting) == (states.count(State.RUNNING), states.count(State.WAITING))
        assert self.door.waiting <= WAITING_MAX
        assert not self.door.waiting or self.door.running >= self.door.limit
        held = [t.tenant for t in self.tickets.values() if t.state in (State.RUNNING, State.WAITING)]
        assert self.door._by_tenant == {tenant: held.count(tenant) for tenant in set(held)}
        assert all(count <= TENANT_MAX for count in self.door._by_tenant.values())
        assert len(self.door._turns) == len(self.door._lines) == len({t for t in held if self.door._lines.get(t)})


TestDoor = Door.TestCase
TestDoor.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
