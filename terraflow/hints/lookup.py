"""One lookup, from its query to its answer: the contract's ten steps, one function a row of `STEPS`.

1. The first step that knows the answer gives it; the deadline is looked at before each, and once more at the end.
2. Nothing is changed but the credit of a PREFIX_MATCH that is delivered: under LFU one to each key of each replica in
   it, under LRU, where it only tells hot keys, one to each of the best replica's.
3. A match that the floors leave nothing of never becomes TENANT_HOT, a chain that matched nothing neither.
4. UNKNOWN_* beats affinity. It speaks of the caller's own tenant only.
5. The adapter partitions keys and nothing else: replica counts, TENANT_HOT, affinity and UNKNOWN_* are blind to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from terraflow.core.affinity import two_named
from terraflow.core.reasons import Lookup
from terraflow.hints.assigned import Match
from terraflow.hints.blocks import BLOCK_TOKENS
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies
from terraflow.hints.question import Input, Query, Tokenizers, read_input, well_formed
from terraflow.hints.rank import (
    NOBODY,
    Candidates,
    RankerConfig,
    Scored,
    StatsOf,
    float32,
    score_matches,
    score_tenant_hot,
)
from terraflow.hints.words import PROBE_TENANT, Held, Known, Scope

if TYPE_CHECKING:
    from terraflow.hints.assigned import Assigned
    from terraflow.hints.index.index import Index

_EIGHT = (8).to_bytes(4, "big")


class Answer(msgspec.Struct, kw_only=True):
    """A LookupRouteResponse but for its latency. `token_ids` echoes what `prompt_text` became.

    `adapter` is the partition that was looked into; empty when none was.
    """

    reason: Lookup
    scored: list[Scored]
    token_ids: Sequence[int] = ()
    adapter: str = ""


class Decision(msgspec.Struct, kw_only=True):
    """How a lookup was decided, for the answer and for who asks why."""

    reason: Lookup
    step: str
    why: str
    ranked: list[Scored] = []


class Grounds(msgspec.Struct, kw_only=True):
    """What the lookups of a process are decided on. `assigned`, and `share_min` above 0, are the two additions: off,
    answers are the reference's."""

    index: Index
    policies: Policies = Policies()
    ranker: RankerConfig = RankerConfig()
    tokenizers: Tokenizers | None = None
    assigned: Assigned | None = None
    share_min: float = 0.0
    """The least share of the input's tokens that makes a match, where the tenant's policy does not say."""
    block_tokens: int = BLOCK_TOKENS


class Look(msgspec.Struct, kw_only=True):
    """One lookup under way: what it was given, and what its steps found."""

    query: Query
    grounds: Grounds
    index: Index
    policy: CachePolicy
    assigned: Assigned | None
    now: float
    expired: Callable[[], bool]
    scope: Scope
    input: Input = Input()
    echo: Sequence[int] = ()
    short: bool = False
    """Below `minimumPrefixTokens`: a positive result counts for nothing."""
    consulted: bool = False
    """The index was asked under the query's adapter."""
    held: list[Held] = []
    share: float = 0.0
    """The least share of the input's tokens that makes a match."""
    replicas: Sequence[str] = ()
    """The scope's, as the index knows them; sorted."""
    serving: Sequence[str] = ()
    """Those and the fleet's members, when there is an assignment memory; sorted."""
    candidates: Candidates = NOBODY
    floored: bool = False
    relieved: bool = False
    """Replicas that match are too busy for what they save."""

    def stats_of(self) -> StatsOf:
        """What a replica last said of itself, and when."""
        return partial(self.index.stats, self.query.tenant, self.query.model)


def _no_hint(step: str, why: str) -> Decision:
    return Decision(reason=Lookup.NO_HINT, step=step, why=why)


# Steps 1 to 6: what can be said without the index


def reserved(look: Look) -> Decision | None:
    """1. The probe's tenant, and tenants that are not the caller's, are not looked up."""
    if look.query.tenant == PROBE_TENANT:
        return _no_hint("tenant", "the tenant is reserved for probes")
    return _no_hint("tenant", "the tenant is not one of the caller's") if look.query.foreign else None


def chain_required(look: Look) -> Decision | None:
    """3. A policy may want a chain from the wire, well-formed."""
    if not look.policy.require_chain or (look.query.block_hashes and well_formed(look.query)):
        return None
    return Decision(
        reason=Lookup.POLICY_REQUIRES_CHAIN, step="require_chain", why="no well-formed chain came with the lookup"
    )


def input_known(look: Look) -> Decision | None:
    """4. Explicit hashes, else token ids, else the prompt's text."""
    grounds = look.grounds
    found = read_input(look.query, look.policy.chain_matching, grounds.tokenizers, grounds.block_tokens)
    look.input, look.echo = found, found.echo
    return _no_hint("input", found.fault) if found.fault else None


def long_enough(look: Look) -> Decision | None:
    """5. A short prompt is no match; without affinity that is known at once."""
    least = look.policy.minimum_prefix_tokens
    look.short = least > 0 and look.input.tokens < least
    if look.short and not look.policy.affinity:
        return _no_hint("minimum_prefix_tokens", f"{look.input.tokens} tokens are less than {least}")
    return None


def keys_named(look: Look) -> Decision | None:
    """6. Tenant, model and scheme name where to look."""
    look.consulted = True
    query = look.query
    if query.tenant and query.model and query.scheme:
        return None
    return _no_hint("keys", "tenant_id, model_id or hash_scheme is empty")


# Steps 6 to 8: what the index says


def _holdings(look: Look) -> list[Held]:
    """What replicas hold of the input; with an assignment memory also what they were just sent."""
    given, adapter = look.input, look.query.adapter
    if given.chain:
        held = look.index.chain(look.scope, adapter, given.hashes, given.counts, look.now)
    elif given.exact:
        return look.index.exact(look.scope, adapter, given.exact, look.now)
    else:
        return []
    if look.assigned is None:
        return held
    longest = {row.replica: row for row in held}
    for row in look.assigned.held(look.scope, adapter, given.hashes, given.counts, look.now):
        reported = longest.get(row.replica)
        if reported is None or reported.tokens < row.tokens:
            longest[row.replica] = row
    return list(longest.values())


def _serving(look: Look) -> Sequence[str]:
    members = look.assigned.members(look.scope) if look.assigned is not None else ()
    return sorted({*look.replicas, *members}) if members else look.replicas


def matched(look: Look) -> Decision | None:
    """7. Replicas that hold enough of the prefix, well enough."""
    policy = look.policy
    look.replicas = look.index.replicas(look.scope, look.now)
    look.serving = _serving(look)
    held = look.held = _holdings(look)
    look.share = look.grounds.share_min if policy.minimum_matched_share is None else policy.minimum_matched_share
    if look.share > 0:
        least = look.share * look.input.tokens
        held = [row for row in held if row.tokens >= least]
    look.candidates = score_matches(
        held,
        total=len(look.serving),
        ttl_s=look.index.ttl_s(look.query.tenant),
        ttft_ms=look.query.ttft_ms,
        stats_of=look.stats_of(),
        config=look.grounds.ranker,
        now=look.now,
    )
    if not look.candidates.replicas:
        return None
    ranked = look.candidates.ranked()
    enough = policy.minimum_matched_tokens
    if enough > 0:
        ranked = [row for row in ranked if row.matched_tokens >= enough]
    floor = policy.routing_floor_score
    if not ranked or look.short or (floor > 0 and ranked[0].score < float32(floor)):
        look.floored = True
        return None
    return _relieved(look, ranked) or _match(ranked, "a replica holds the prefix")


def _match(ranked: list[Scored], why: str) -> Decision:
    return Decision(reason=Lookup.PREFIX_MATCH, step="match", why=why, ranked=ranked)


def _relieved(look: Look, ranked: list[Scored]) -> Decision | None:
    """A match whose replica is too busy for what it saves gives way, where an assignment memory knows that."""
    if look.assigned is None or not look.input.chain:
        return None
    hashes, adapter = look.input.hashes, look.query.adapter
    blocks = dict(zip(look.candidates.replicas, look.candidates.blocks, strict=True))
    matches = [Match(row.replica, blocks[row.replica], row.matched_tokens) for row in ranked]
    # What was just sent may be all that is known of the scope, where nobody has joined it.
    hashed = look.policy.affinity and look.serving
    other = _lesser(look, look.assigned) if hashed else ranked[0].replica
    chosen = look.assigned.preferred(look.scope, adapter, hashes, matches, other, look.now)
    at = next((at for at, row in enumerate(ranked) if row.replica == chosen), None)
    if at == 0:
        return None
    look.relieved = True
    if at is not None:
        return _match(ranked[at:], "a replica holds the prefix, and those that hold more of it are too busy")
    return _affinity(chosen, "the replicas that hold the prefix are too busy for what it saves")


def tenant_hot(look: Look) -> Decision | None:
    """8. After the miss of an exact hash: who has lately served the tenant well."""
    if look.input.chain or look.floored or look.short or not look.policy.tenant_hot:
        return None
    look.candidates = score_tenant_hot(
        look.replicas,
        ttl_s=look.index.ttl_s(look.query.tenant),
        ttft_ms=look.query.ttft_ms,
        stats_of=look.stats_of(),
        config=look.grounds.ranker,
        now=look.now,
    )
    if not look.candidates.replicas:
        return None
    return Decision(
        reason=Lookup.TENANT_HOT,
        step="tenant_hot",
        why="a replica has lately served the tenant well",
        ranked=look.candidates.ranked(),
    )


# Steps 9 and 10: nothing speaks for a replica

_UNKNOWN = {
    Known.NOTHING: (Lookup.NO_HINT, "the index is empty"),
    Known.OTHER_TENANTS: (Lookup.UNKNOWN_TENANT, "the index has keys, and none of the tenant"),
    Known.OTHER_MODELS: (Lookup.UNKNOWN_MODEL, "the tenant has keys, and none of the model"),
    Known.OTHER_SCHEMES: (Lookup.UNKNOWN_HASH_SCHEME, "the tenant's keys of the model are of other schemes"),
}


def known(look: Look) -> Decision | None:
    """9. Which of the names that lead to keys leads to none."""
    if look.replicas:
        return None
    query = look.query
    found = _UNKNOWN.get(look.index.known(query.tenant, query.model, query.scheme, look.now))
    return None if found is None else Decision(reason=found[0], step="known", why=found[1])


def affinity_seed(hashes: Sequence[bytes], exact: bytes) -> bytes:
    """What affinity hashes: each block hash behind its length as a big-endian u32, else the exact hash."""
    if not hashes:
        return exact
    if set(map(len, hashes)) == {8}:
        return _EIGHT + _EIGHT.join(hashes)
    return b"".join([len(part).to_bytes(4, "big") + part for part in hashes])


def affine(look: Look) -> Decision | None:
    """10. The same replica for the same prompt, until something is known of it."""
    query = look.query
    if not look.policy.affinity:
        return _no_hint("affinity", "nothing matched, and affinity is off")
    if not look.input.chain and not well_formed(query):
        return _no_hint("affinity", "nothing matched, and the chain beside it is malformed")
    if not (look.input.hashes or look.input.exact) or not look.serving:
        return _no_hint("affinity", "nothing matched, and there is nothing to choose a replica by")
    if look.assigned is not None:
        named = _lesser(look, look.assigned)
    else:
        named = _contracted(look.serving, affinity_seed(look.input.hashes, look.input.exact))
    return _affinity(named, "nothing matched; the prompt's fingerprint chose")


def _affinity(replica: str, why: str) -> Decision:
    ranked = [Scored(replica, 0.0, 0, 0.0, 0)]
    return Decision(reason=Lookup.AFFINITY_HINT, step="affinity", why=why, ranked=ranked)


def _lesser(look: Look, assigned: Assigned) -> str:
    """Of the two replicas that the input names, the less loaded."""
    given, serving = look.input, look.serving
    first, second = two_named(serving, given.hashes[-1] if given.hashes else given.exact)
    return assigned.lesser(look.scope, serving[first], serving[second], look.now)


def _contracted(serving: Sequence[str], seed: bytes) -> str:
    """The serving replica that the contract's formula names."""
    return serving[int.from_bytes(sha256(seed).digest()[:8], "big") % len(serving)]


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

_LATE = Decision(reason=Lookup.TIMEOUT, step="deadline", why="the deadline has passed")


def never() -> bool:
    """For `expired`, where there is no deadline."""
    return False


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
    return Answer(reason=decision.reason, scored=decision.ranked, token_ids=look.echo, adapter=adapter)


def credit(look: Look, ranked: Sequence[Scored]) -> None:
    """One to each key that a delivered match rests on.

    Where nothing is evicted by use, only the best replica's keys are credited: that a key was used is what is counted.
    """
    given, candidates = look.input, look.candidates
    for row in ranked if look.policy.eviction is Eviction.LFU else ranked[:1]:
        blocks = candidates.blocks[candidates.replicas.index(row.replica)]
        keys = given.hashes[:blocks] if given.chain else (given.exact,)
        look.index.credit(look.scope, look.query.adapter, keys, row.replica, look.now)
