"""Why a lookup is answered as it is: every replica of its scope with what it holds and what became of it.

1. It takes the same steps as the lookup itself, so that it cannot say anything else.
2. It changes nothing: no credit is given.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.look import Grounds, Look, never
from terraflow.hints.deciding.lookup import decide, start
from terraflow.hints.deciding.question import Query
from terraflow.hints.deciding.rank import Scored
from terraflow.hints.words import Held


class Factors(msgspec.Struct, frozen=True, kw_only=True):
    """What a score is the product of, in this order; `basis` is the matched tokens, or the hit rate of TENANT_HOT."""

    basis: float
    freshness: float
    pressure: float
    slo: float
    distinguishing: float
    tier: float
    degraded: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: what it holds of the input, its factors if it was scored, and what became of it."""

    replica: str
    blocks: int = 0
    matched_tokens: int = 0
    age_s: float | None = None
    tier: int = 0
    in_flight: int = 0
    load_tokens: float = 0.0
    score: float | None = None
    factors: Factors | None = None
    answered: bool = False
    why: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A lookup taken apart. `rows`: the answer's replicas in their order, then the others by id."""

    reason: Lookup
    step: str
    """Which step answered."""
    why: str
    blocks: int
    """Of the input's chain; 0 for an exact hash."""
    input_tokens: int
    replicas_in_scope: int
    scored: list[Scored]
    rows: list[Row]


def explain(query: Query, grounds: Grounds, now: float) -> Explanation:
    """What `decide_lookup` would answer at `now`, and why; there is no deadline."""
    look = start(query, grounds, now, never)
    decision = decide(look)
    return Explanation(
        reason=decision.reason,
        step=decision.step,
        why=decision.why,
        blocks=len(look.input.hashes),
        input_tokens=look.input.tokens,
        replicas_in_scope=len(look.serving),
        scored=decision.ranked,
        rows=list(_rows(look, decision.reason, decision.ranked)),
    )


def _rows(look: Look, reason: Lookup, ranked: list[Scored]) -> Iterator[Row]:
    answered = [row.replica for row in ranked]
    held = {row.replica: row for row in look.held}
    scored = {replica: at for at, replica in enumerate(look.candidates.replicas)}
    others = sorted({*look.serving, *held, *scored} - set(answered))
    for replica in answered + others:
        row, at = held.get(replica), scored.get(replica)
        yield Row(
            replica=replica,
            blocks=row.blocks if row is not None else 0,
            matched_tokens=row.tokens if row is not None else 0,
            age_s=look.now - row.seen_at if row is not None else None,
            tier=row.tier if row is not None else 0,
            in_flight=look.assigned.in_flight(look.scope, replica) if look.assigned is not None else 0,
            load_tokens=look.assigned.load(look.scope, replica, look.now) if look.assigned is not None else 0.0,
            score=look.candidates.scores[at] if at is not None else None,
            factors=_factors(look, at) if at is not None else None,
            answered=replica in answered,
            why=_chosen(reason, replica == answered[0]) if replica in answered else _passed(look, row, at),
        )


def _factors(look: Look, at: int) -> Factors:
    among = look.candidates
    hot = not among.matched[at]
    return Factors(
        basis=among.probability[at] if hot else float(among.matched[at]),
        freshness=among.freshness[at],
        pressure=among.pressure[at],
        slo=among.slo[at],
        distinguishing=among.distinguishing[at],
        tier=among.tier[at],
        degraded=among.degraded[at],
    )


def _chosen(reason: Lookup, first: bool) -> str:
    if reason is Lookup.AFFINITY_HINT:
        return "the prompt's fingerprint chose it"
    return "the best score" if first else "a lesser score, or the same and a greater id"


def _passed(look: Look, held: Held | None, at: int | None) -> str:
    """Why a replica is not in the answer."""
    if held is None:
        return "scored, and not delivered" if at is not None else "holds nothing of the input"
    if held.tokens <= 0:
        return "what it holds counts no tokens"
    if held.tokens < look.share * look.input.tokens:
        return f"holds less than a share of {look.share:g}"
    if at is None:
        return "what it holds is too old"
    if held.tokens < look.policy.minimum_matched_tokens:
        return f"holds less than minimumMatchedTokens, {look.policy.minimum_matched_tokens}"
    if look.short:
        return f"the input is below minimumPrefixTokens, {look.policy.minimum_prefix_tokens}"
    if look.relieved:
        return "too busy for what it saves"
    return f"the best score is below routingFloorScore, {look.policy.routing_floor_score:g}"
