"""Steps 6 to 10 of a lookup: what the index says, and what is left to say when it says nothing.

1. A match that the floors leave nothing of never becomes TENANT_HOT, a chain that matched nothing neither.
2. UNKNOWN_* beats affinity. It speaks of the caller's own tenant only.
3. The adapter partitions keys and nothing else: replica counts, TENANT_HOT, affinity and UNKNOWN_* are blind to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.assigned import Match
from terraflow.hints.deciding.look import Decision, Look, no_hint
from terraflow.hints.deciding.question import well_formed
from terraflow.hints.deciding.rank import Scored, float32, score_matches, score_tenant_hot
from terraflow.hints.words import Held, Known

if TYPE_CHECKING:
    from terraflow.hints.deciding.assigned import Assigned
    from terraflow.hints.policy.policies import CachePolicy

_EIGHT = (8).to_bytes(4, "big")


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
    look.candidates = score_matches(held, len(look.serving), look.weighing())
    if not look.candidates.replicas:
        return None
    ranked = above_floors(look.candidates.ranked(), policy)
    if look.short or not ranked:
        look.floored = True
        return None
    return _relieved(look, ranked) or _match(ranked, "a replica holds the prefix")


def above_floors(ranked: list[Scored], policy: CachePolicy) -> list[Scored]:
    """What a policy's floors leave of a ranking: who matches enough tokens; nobody, where the best of them scores too
    little."""
    enough, floor = policy.minimum_matched_tokens, policy.routing_floor_score
    if enough > 0:
        ranked = [row for row in ranked if row.matched_tokens >= enough]
    return [] if ranked and floor > 0 and ranked[0].score < float32(floor) else ranked


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
    look.candidates = score_tenant_hot(look.replicas, look.weighing())
    if not look.candidates.replicas:
        return None
    return Decision(
        reason=Lookup.TENANT_HOT,
        step="tenant_hot",
        why="a replica has lately served the tenant well",
        ranked=look.candidates.ranked(),
    )


# Steps 9 and 10: nothing speaks for a replica

UNKNOWN = {
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
    found = UNKNOWN.get(look.index.known(query.tenant, query.model, query.scheme, look.now))
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
        return no_hint("affinity", "nothing matched, and affinity is off")
    if not look.input.chain and not well_formed(query):
        return no_hint("affinity", "nothing matched, and the chain beside it is malformed")
    if not (look.input.hashes or look.input.exact) or not look.serving:
        return no_hint("affinity", "nothing matched, and there is nothing to choose a replica by")
    if look.assigned is not None:
        named = _lesser(look, look.assigned)
    else:
        named = contracted(look.serving, affinity_seed(look.input.hashes, look.input.exact))
    return _affinity(named, "nothing matched; the prompt's fingerprint chose")


def _affinity(replica: str, why: str) -> Decision:
    ranked = [Scored(replica, 0.0, 0, 0.0, 0)]
    return Decision(reason=Lookup.AFFINITY_HINT, step="affinity", why=why, ranked=ranked)


def _lesser(look: Look, assigned: Assigned) -> str:
    """Of the two replicas that the input names, the less loaded."""
    given = look.input
    return assigned.named(look.scope, look.serving, given.hashes[-1] if given.hashes else given.exact, look.now)


def contracted(serving: Sequence[str], seed: bytes) -> str:
    """The replica that the contract's formula names, of these in their order; there is one at least."""
    return serving[int.from_bytes(sha256(seed).digest()[:8], "big") % len(serving)]
