"""One lookup, from its query to its answer: the contract's ten steps, one function a row of `STEPS`.

1. The first step that knows the answer gives it; the deadline is looked at before each, and once more at the end.
2. Nothing is changed but the credit of a PREFIX_MATCH that is delivered: under LFU one to each key of each replica in
   it, under LRU, where it only tells hot keys, one to each of the best replica's; to the first `CREDITED_MAX`, if more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.look import Decision, Grounds, Look
from terraflow.hints.deciding.question import Input, Query
from terraflow.hints.deciding.rank import Scored
from terraflow.hints.deciding.with_index import affine, known, matched, tenant_hot
from terraflow.hints.deciding.without_index import chain_required, input_known, keys_named, long_enough, reserved
from terraflow.hints.policy.policies import Eviction
from terraflow.hints.words import Scope


class Answer(msgspec.Struct, kw_only=True):
    """A LookupRouteResponse but for its latency. `token_ids` echoes what `prompt_text` became.

    `adapter` is the partition that was looked into; empty when none was. `asked` is what was looked up, which is not in
    the response.
    """

    reason: Lookup
    scored: list[Scored]
    token_ids: Sequence[int] = ()
    adapter: str = ""
    asked: Input = Input()


STEPS: tuple[Callable[[Look], Decision | None], ...] = (
    reserved,
    chain_required,
    input_known,
    long_enough,
    keys_named,
    matched,
    tenant_hot,
    known,
    affine,
)
"""In the contract's order. Its second step, the deadline, stands before each but the first, and behind the last."""

CREDITED_MAX = 8_192
"""Keys that one lookup credits, of all its replicas together: some ms."""

_LATE = Decision(reason=Lookup.TIMEOUT, step="deadline", why="the deadline has passed")


def decide(look: Look) -> Decision:
    """What the steps say; changes nothing but `look`."""
    expired = look.expired
    for step in STEPS:
        if step is not reserved and expired():
            return _LATE
        decision = step(look)
        if decision is not None:
            break
    else:
        raise AssertionError("the last step always answers")
    return _LATE if step is not reserved and expired() else decision


def start(query: Query, grounds: Grounds, now: float, expired: Callable[[], bool]) -> Look:
    """A lookup that has not taken a step yet. Arguments as `decide_lookup`."""
    return Look(
        query=query,
        grounds=grounds,
        index=grounds.index,
        policy=grounds.policies.policy(query.tenant),
        assigned=grounds.assigned,
        now=now,
        expired=expired,
        scope=Scope(query.tenant, query.model, query.scheme),
    )


def decide_lookup(query: Query, grounds: Grounds, now: float, expired: Callable[[], bool]) -> Answer:
    """The answer to a query at `now`, monotonic seconds; `expired` tells whether its deadline has passed."""
    look = start(query, grounds, now, expired)
    decision = decide(look)
    if decision.reason is Lookup.PREFIX_MATCH:
        credit(look, decision.ranked)
    adapter = query.adapter if look.consulted and decision.reason is not Lookup.TIMEOUT else ""
    return Answer(
        reason=decision.reason, scored=decision.ranked, token_ids=look.input.echo, adapter=adapter, asked=look.input
    )


def credit(look: Look, ranked: Sequence[Scored]) -> None:
    """One to each key that a delivered match rests on.

    Where nothing is evicted by use, only the best replica's keys are credited: that a key was used is what is counted.
    """
    given, candidates, left = look.input, look.candidates, CREDITED_MAX
    for row in ranked if look.policy.eviction is Eviction.LFU else ranked[:1]:
        blocks = candidates.blocks[candidates.replicas.index(row.replica)]
        keys = given.hashes[: min(blocks, left)] if given.chain else (given.exact,)
        if left <= 0:
            break
        left -= len(keys)
        look.index.credit(look.scope, look.query.adapter, keys, row.replica, look.now)
