"""The answer of a service elsewhere and what this side has routed, as one hint.

A server of the contract knows what replicas report, and nothing of what is on its way to them. With neither that nor
pressure, the first replica that reports a prompt which all requests begin with would take all of them, for good.

1. What is matched by less than the fleets' share of a prompt is left out here: the contract's message does not say what
   share the server asks, and the reference asks none. A server's setting or policy can so ask for more, not for less.
2. What was just sent counts as held, and comes first where it is more of the prompt than the answer's best.
3. A match whose replica is too busy for what it saves gives way (`Assigned.preferred`) to another match, or to the less
   loaded of the two replicas that the whole prompt names.
4. So does a match of which the share leaves nothing, and affinity: a server counts only those that have reported.
5. Where nothing matches and the answer is that nothing is known, so it stays.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.assigned import Assigned, Match
from terraflow.hints.words import FLEET_SHARE_MIN, Scope
from terraflow.ports.hints import Hint, Prefix, Ranked


def routed(assigned: Assigned, prefix: Prefix, hint: Hint, now: float) -> Hint:
    """The hint that a fleet gets at `now`, monotonic seconds; `assigned` is what its own side has routed."""
    scope = scope_of(prefix)
    matches = _matches(assigned, scope, prefix, hint, now)
    members = assigned.members(scope) if prefix.hashes else ()
    if not matches:
        if members and hint.reason in (Lookup.PREFIX_MATCH, Lookup.AFFINITY_HINT):
            return _affinity(assigned.named(scope, members, prefix.hashes[-1], now))
        return Hint(reason=Lookup.NO_HINT) if hint.reason is Lookup.PREFIX_MATCH else hint
    other = assigned.named(scope, members, prefix.hashes[-1], now) if members else matches[0].replica
    ends = list(accumulate(prefix.counts))
    known = [Match(one.replica, bisect_right(ends, one.matched_tokens), one.matched_tokens) for one in matches]
    chosen = assigned.preferred(scope, prefix.adapter, prefix.hashes, known, other, now)
    at = next((at for at, one in enumerate(matches) if one.replica == chosen), None)
    return _affinity(chosen) if at is None else Hint(reason=Lookup.PREFIX_MATCH, ranked=tuple(matches[at:]))


def scope_of(prefix: Prefix) -> Scope:
    """Where a prefix is looked for."""
    return Scope(prefix.tenant, prefix.model, prefix.scheme)


def _matches(assigned: Assigned, scope: Scope, prefix: Prefix, hint: Hint, now: float) -> list[Ranked]:
    """Who holds a material share of the prompt, best first."""
    answered = hint.ranked if hint.reason is Lookup.PREFIX_MATCH else ()
    best = max((one.matched_tokens for one in answered), default=0)
    held = assigned.held(scope, prefix.adapter, prefix.hashes, prefix.counts, now)
    longer = [row for row in held if row.tokens > best]
    longer.sort(key=lambda row: (-row.tokens, assigned.load(scope, row.replica, now), row.replica))
    sent = [Ranked(row.replica, float(row.tokens), row.tokens) for row in longer]
    least = prefix.tokens * FLEET_SHARE_MIN
    return [one for one in (*sent, *answered) if one.matched_tokens >= least]


def _affinity(replica: str) -> Hint:
    return Hint(reason=Lookup.AFFINITY_HINT, ranked=(Ranked(replica, 0.0, 0),))
