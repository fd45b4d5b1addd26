"""A fleet's choice with a service elsewhere that knows no load: its own replicas, its memory of what it sent, and whole
answers of the real index by the contract's ranking, on a simulated fleet's time. No pressure is reported."""

from __future__ import annotations

import pytest

from terraflow.core.affinity import member_of
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.look import Grounds, never
from terraflow.hints.deciding.lookup import decide_lookup
from terraflow.hints.plane.inside import query_of
from terraflow.hints.plane.routed import routed
from terraflow.hints.replay.fleet import Fleet, Served
from terraflow.hints.replay.hinted import SCOPE, Hinted
from terraflow.hints.replay.run import Figures, Policy, Setting, replay, run
from terraflow.hints.replay.trace import TraceRequest
from terraflow.ports.hints import Hint, Prefix, Ranked
from terraflow.providers.replicas import Seat, choose
from tests.hints.replay.loads import conversations, shared_prompt

REQUESTS = 1000
ENGINES_TELL = 1.0
"""Seconds until the service elsewhere hears of a cache's change."""


class Open:
    permitted = True


class Elsewhere(Hinted):
    """What the engines tell goes to the service; what is routed is known to this side alone."""

    def __init__(self, fleet: Fleet, setting: Setting, *, share_min: float, rank: str, weighed: bool) -> None:
        """`rank` is how the service's names go on; `weighed`: the answers are, as a plane does."""
        super().__init__(
            fleet, blocks=setting.blocks, seed=setting.seed, report_pressure=False, event_delay_s=ENGINES_TELL
        )
        self._grounds = Grounds(index=self._index, assigned=None, share_min=share_min)
        self._mine = Assigned()
        self._mine.join(SCOPE, self._names)
        self._seats = [Seat(name, Open()) for name in self._names]
        self._rank, self._weighed = rank, weighed

    def choose(self, request: TraceRequest, now: float) -> int:
        self._hear(now)
        prefix = self._prefix(request)
        answer = decide_lookup(query_of(prefix), self._grounds, now, never)
        ranked = [Ranked(one.replica + self._rank, one.score, one.matched_tokens) for one in answer.scored]
        hint = Hint(reason=answer.reason, ranked=tuple(ranked))
        if self._weighed:
            hint = routed(self._mine, prefix, hint, now)
        at = choose(self._seats, hint, prefix, (), now)
        seat = self._seats[at]
        matched = next((one.matched_tokens for one in hint.ranked if member_of(one.replica, self._names) == seat.id), 0)
        self._mine.sent(SCOPE, "", seat.id, prefix.hashes, prefix.tokens - matched, now)
        seat.began()
        return at

    def ended(self, served: Served, request: TraceRequest, now: float) -> None:
        prefix, seat = self._prefix(request), self._seats[served.replica]
        seat.ended()
        self._mine.ended(SCOPE, "", seat.id, prefix.hashes, True, now)

    def _prefix(self, request: TraceRequest) -> Prefix:
        hashes, counts = self._chain(request)
        tenant, model, scheme = SCOPE
        return Prefix(
            tenant=tenant, model=model, scheme=scheme, hashes=hashes, counts=counts, tokens=request.input_length
        )


def figures(trace: list[TraceRequest], *, share_min: float = 0.05, rank: str = "", weighed: bool = True) -> Figures:
    def choice(fleet: Fleet, setting: Setting) -> Elsewhere:
        return Elsewhere(fleet, setting, share_min=share_min, rank=rank, weighed=weighed)

    return run(trace, Setting(), Policy("elsewhere", choice, False))


@pytest.mark.parametrize(("share_min", "rank"), [(0.0, ""), (0.05, ""), (0.05, "/dp1")])
@pytest.mark.parametrize(
    ("shared", "own", "rate"),
    [(1, 24, 1.2), (4, 100, 0.5), (1, 8, 0.4), (1, 8, 3.4), (2, 8, 3.4), (8, 16, 1.5), (16, 1, 20.0), (16, 1, 50.0)],
)
def test_a_system_prompt_that_all_share_does_not_bring_all_to_one_replica(
    shared: int, own: int, rate: float, share_min: float, rank: str
) -> None:
    trace = shared_prompt(shared, own, rate, REQUESTS)
    (turns,) = replay(trace, Setting(), ["round_robin"])
    found = figures(trace, share_min=share_min, rank=rank)
    assert found.load_imbalance <= 1.06
    assert found.hit_rate >= turns.hit_rate - 0.01
    assert found.ttft_p50_ms < 1.5 * turns.ttft_p50_ms


def test_the_trap_is_there_where_answers_are_taken_as_they_come() -> None:
    """The first replica that reports the shared prompt takes the whole traffic, until its queue alone stops it."""
    assert figures(shared_prompt(1, 8, 0.4, REQUESTS), weighed=False).load_imbalance == 8.0
    assert figures(shared_prompt(8, 16, 1.5, REQUESTS), weighed=False).load_imbalance > 2.0


@pytest.mark.parametrize("share_min", [0.0, 0.05])
def test_conversations_find_nearly_what_a_pooled_cache_would(share_min: float) -> None:
    found = figures(conversations(), share_min=share_min)
    assert found.hit_rate >= 0.335
    assert found.load_imbalance <= 1.03
    assert found.ttft_p99_ms < 12_000
