"""One trace under one policy, or under several, and what it came to.

1. Time is the trace's. At one instant what ended and what caches changed comes before what arrives.
2. hit_rate: tokens found in caches, of all input tokens. load_imbalance: the tokens that the busiest replica had to
   prefill, over the mean. ttft: waiting for one's turn and prefilling what was missed; a percentile is that of
   one request, never a value between two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from terraflow.hints.replay.choosing import Choice, earliest, hashing, least_loaded, round_robin
from terraflow.hints.replay.fleet import Fleet, Served, Speeds
from terraflow.hints.replay.hinted import Hinted
from terraflow.hints.replay.trace import TraceRequest

Told = Callable[[int, int], None]
PROGRESS_EVERY = 500


class Figures(msgspec.Struct, frozen=True):
    """What one policy came to."""

    policy: str
    hit_rate: float
    load_imbalance: float
    ttft_p50_ms: float
    ttft_p99_ms: float


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all policies of a replay have in common."""

    replicas: int = 8
    blocks: int = 4000
    speeds: Speeds = Speeds()
    seed: int = 0
    report_pressure: bool = False
    event_delay_ms: float = 0.0


class Policy(NamedTuple):
    """A row of the table."""

    name: str
    choice: Callable[[Fleet, Setting], Choice]
    pooled: bool


# fmt: off
POLICIES: tuple[Policy, ...] = (
    Policy("round_robin",  lambda fleet, setting: round_robin(fleet, setting.seed),  False),
    Policy("least_loaded", lambda fleet, setting: least_loaded(fleet, setting.seed), False),
    Policy("hashing",      lambda fleet, setting: hashing(fleet, setting.seed),      False),
    Policy("hints",        lambda fleet, setting: _hinted(fleet, setting),           False),
    Policy("oracle",       lambda fleet, setting: earliest(fleet, setting.seed),     True),
)
# fmt: on
NAMES = tuple(policy.name for policy in POLICIES)


def _hinted(fleet: Fleet, setting: Setting) -> Choice:
    return Hinted(
        fleet,
        blocks=setting.blocks,
        seed=setting.seed,
        report_pressure=setting.report_pressure,
        event_delay_s=setting.event_delay_ms / 1000.0,
    )


def replay(
    trace: Sequence[TraceRequest], setting: Setting, names: Sequence[str] = NAMES, told: Told | None = None
) -> list[Figures]:
    """The trace under each of the named policies, in the order they are named. Raises KeyError for a name that is none.

    `told(done, total)` hears of requests, over all policies, every now and then.
    """
    rows = {policy.name: policy for policy in POLICIES}
    wanted = [rows[name] for name in dict.fromkeys(names)]
    total, figures = len(trace) * len(wanted), []
    for at, policy in enumerate(wanted):
        offset = at * len(trace)
        each = None if told is None else lambda done, offset=offset: told(offset + done, total)
        figures.append(run(trace, setting, policy, each))
    return figures


def run(
    trace: Sequence[TraceRequest], setting: Setting, policy: Policy, told: Callable[[int], None] | None = None
) -> Figures:
    """The trace under one policy."""
    fleet = Fleet(setting.replicas, setting.blocks, setting.speeds, pooled=policy.pooled)
    choice = policy.choice(fleet, setting)
    course = _Course(fleet, choice)
    hit_tokens, ttfts = 0, []
    for number, request in enumerate(trace):
        if told is not None and number % PROGRESS_EVERY == 0:
            told(number)
        now = request.timestamp / 1000.0
        course.advance(now)
        served = course.send(request, choice.choose(request, now), now)
        hit_tokens += served.hit_tokens
        ttfts.append(served.ttft_s)
    if told is not None:
        told(len(trace))
    ttfts.sort()
    prefilled = sum(fleet.prefilled_tokens)
    return Figures(
        policy=policy.name,
        hit_rate=hit_tokens / sum(request.input_length for request in trace),
        load_imbalance=max(fleet.prefilled_tokens) * len(fleet) / prefilled if prefilled else 1.0,
        ttft_p50_ms=_percentile(ttfts, 50) * 1000.0,
        ttft_p99_ms=_percentile(ttfts, 99) * 1000.0,
    )


class _Course:
    """What is yet to happen to requests on their way: by time, and of one time in the order of being sent."""

    def __init__(self, fleet: Fleet, choice: Choice) -> None:
        self._fleet = fleet
        self._steps = (choice.begun, choice.first_token, choice.ended)
        self._due: list[tuple[float, int, int, Served, TraceRequest]] = []
        self._sent = 0

    def send(self, request: TraceRequest, replica: int, now: float) -> Served:
        served = self._fleet.serve(request, replica, now)
        self._fleet.in_flight[replica] += 1
        self._sent += 1
        for step, at in enumerate((served.begun_at, served.first_token_at, served.ended_at)):
            heappush(self._due, (at, self._sent, step, served, request))
        return served

    def advance(self, now: float) -> None:
        due = self._due
        while due and due[0][0] <= now:
            at, _, step, served, request = heappop(due)
            if step == 2:
                self._fleet.in_flight[served.replica] -= 1
            self._steps[step](served, request, at)


def _percentile(ordered: Sequence[float], per_cent: int) -> float:
    """The least of them that so many per cent do not exceed."""
    return ordered[-(-len(ordered) * per_cent // 100) - 1]
