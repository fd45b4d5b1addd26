"""A plain model of the lookup: the contract's ten steps written down one after the other, over the plain index.

It shares no code with what it is compared to but the words: fingerprints, float32, floors and order are its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import NamedTuple

import xxhash

from terraflow.hints.deciding.question import Query
from terraflow.hints.deciding.rank import RankerConfig
from terraflow.hints.policy.policies import Eviction, Policies
from terraflow.hints.words import Held, Known, Scope
from tests.hints.model import Model

PROBE = "inferencecache.io/probe"
Row = tuple[str, float, int, float, int]
"""Replica, score, matched tokens, hit probability, tier."""


class Told(NamedTuple):
    """What the model answers."""

    reason: str
    rows: list[Row]
    token_ids: list[int]
    adapter: str


class World(NamedTuple):
    """What a lookup depends on beside its query."""

    index: Model
    policies: Policies
    ranker: RankerConfig
    tokenize: Callable[[str, str], list[int] | None]
    block_tokens: int
    share_min: float


def f32(value: float) -> float:
    """The nearest float32."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def chained(ids: list[int], size: int) -> list[bytes]:
    """Prefix hashes of whole blocks, as on the wire."""
    found: list[bytes] = []
    last: int | None = None
    for start in range(0, len(ids) - size + 1, size):
        raw = b"".join(struct.pack("<I", one) for one in ids[start : start + size])
        own = xxhash.xxh3_64_intdigest(raw, seed=1337)
        if last is not None:
            own = xxhash.xxh3_64_intdigest(struct.pack("<Q", last) + struct.pack("<Q", own), seed=1337)
        last = own
        found.append(struct.pack(">Q", own))
    return found


class Given(NamedTuple):
    """What step 4 finds: a chain, else an exact hash, which may be empty; and how many tokens the request has."""

    chain: list[bytes] | None
    counts: list[int]
    exact: bytes
    tokens: int
    echo: list[int]


def _well_formed(query: Query) -> bool:
    return len(query.block_hashes) == len(query.block_token_counts) and b"" not in query.block_hashes


def plain_lookup(query: Query, world: World, now: float, late: bool) -> Told:
    """The answer; the model's own index is credited."""
    policy = world.policies.policy(query.tenant)
    # 1
    if query.tenant == PROBE or query.foreign:
        return Told("NO_HINT", [], [], "")
    # 2
    if late:
        return Told("TIMEOUT", [], [], "")
    # 3
    if policy.require_chain and not (len(query.block_hashes) > 0 and _well_formed(query)):
        return Told("POLICY_REQUIRES_CHAIN", [], [], "")
    # 4
    given = _given(query, policy.chain_matching, world)
    if isinstance(given, Told):
        return given
    # 5
    short = policy.minimum_prefix_tokens > 0 and given.tokens < policy.minimum_prefix_tokens
    if short and not policy.affinity:
        return Told("NO_HINT", [], given.echo, "")
    # 6
    if query.tenant == "" or query.model == "" or query.scheme == "":
        return Told("NO_HINT", [], given.echo, query.adapter)
    serving = sorted(world.index.replicas(Scope(query.tenant, query.model, query.scheme), now))
    held = _held(given, query, world, now)
    # 7
    kept = [] if short else _matches(held, len(serving), query, world, now)
    if kept:
        _credit(kept, held, given, query, world, now)
        return Told("PREFIX_MATCH", kept, given.echo, query.adapter)
    # 8
    if not held and given.chain is None and policy.tenant_hot and not short:
        hot = _tenant_hot(serving, query, world, now)
        if hot:
            return Told("TENANT_HOT", hot, given.echo, query.adapter)
    # 9
    unknown = UNKNOWN.get(world.index.known(query.tenant, query.model, query.scheme, now))
    if unknown is not None:
        return Told(unknown, [], given.echo, query.adapter)
    # 10
    seed = b"".join(struct.pack(">I", len(one)) + one for one in given.chain) if given.chain else given.exact
    if not policy.affinity or not _well_formed(query) or seed == b"" or not serving:
        return Told("NO_HINT", [], given.echo, query.adapter)
    first = struct.unpack(">Q", hashlib.sha256(seed).digest()[:8])[0] % len(serving)
    return Told("AFFINITY_HINT", [(serving[first], 0.0, 0, 0.0, 0)], given.echo, query.adapter)


UNKNOWN = {
    Known.NOTHING: "NO_HINT",
    Known.OTHER_TENANTS: "UNKNOWN_TENANT",
    Known.OTHER_MODELS: "UNKNOWN_MODEL",
    Known.OTHER_SCHEMES: "UNKNOWN_HASH_SCHEME",
}
"""Step 9."""


def _given(query: Query, chain_matching: bool, world: World) -> Given | Told:
    """Step 4."""
    hashes, counts = list(query.block_hashes), list(query.block_token_counts)
    has_chain = len(hashes) > 0 or len(counts) > 0
    if has_chain and chain_matching:
        if not _well_formed(query):
            return Told("NO_HINT", [], [], "")
        return Given(hashes, counts, query.prefix_hash, sum(counts), [])
    if query.prefix_hash != b"" or not (query.token_ids or query.prompt_text):
        if query.prefix_hash == b"" and has_chain:
            return Told("NO_HINT", [], [], "")
        return Given(None, [], query.prefix_hash, query.prefix_token_count, [])
    echo: list[int] = []
    ids = list(query.token_ids)
    if not ids:
        found = world.tokenize(query.model, query.prompt_text)
        if not found:
            return Told("NO_HINT", [], [], "")
        ids = echo = found
    derived = chained(ids, world.block_tokens)
    if not derived:
        return Told("NO_HINT", [], echo, "")
    tokens = world.block_tokens * len(derived)
    if not chain_matching:
        return Given(None, [], derived[-1], tokens, echo)
    return Given(derived, [world.block_tokens] * len(derived), derived[-1], tokens, echo)


def _held(given: Given, query: Query, world: World, now: float) -> list[Held]:
    """Who holds anything of the input, and enough of it to be a match at all."""
    scope = Scope(query.tenant, query.model, query.scheme)
    held: list[Held] = []
    if given.chain is not None:
        held = world.index.chain(scope, query.adapter, given.chain, given.counts, now)
    elif given.exact != b"":
        held = world.index.exact(scope, query.adapter, given.exact, now)
    policy = world.policies.policy(query.tenant)
    share = world.share_min if policy.minimum_matched_share is None else policy.minimum_matched_share
    return [one for one in held if one.tokens > 0 and not one.tokens < share * given.tokens]


def _matches(held: list[Held], replicas: int, query: Query, world: World, now: float) -> list[Row]:
    """Step 7: best first, and what the floors leave of it."""
    policy = world.policies.policy(query.tenant)
    scored = sorted((_score(one, held, replicas, query, world, now) for one in held), key=lambda row: (-row[1], row[0]))
    kept = [row for row in scored if row[2] >= policy.minimum_matched_tokens]
    if kept and policy.routing_floor_score > 0 and kept[0][1] < f32(policy.routing_floor_score):
        return []
    return kept


def _credit(kept: list[Row], held: list[Held], given: Given, query: Query, world: World, now: float) -> None:
    """One to each key of who is in the answer under LFU, else of the best alone."""
    run = {one.replica: one.blocks for one in held}
    lfu = world.policies.policy(query.tenant).eviction is Eviction.LFU
    for row in kept if lfu else kept[:1]:
        keys = given.chain[: run[row[0]]] if given.chain is not None else [given.exact]
        world.index.credit(Scope(query.tenant, query.model, query.scheme), query.adapter, keys, row[0], now)


def _pressure(query: Query, world: World, replica: str, now: float) -> float:
    stats = world.index.stats(query.tenant, query.model, replica)
    if stats is None or now - stats[1] >= world.index.ttl_s(query.tenant):
        return 1.0
    return f32(max(0.0, min(1.0, 1 - f32(world.ranker.pressure_weight) * stats[0].pressure)))


def _slo(fresh: float, query: Query, world: World) -> float:
    tight = 0 < query.ttft_ms < world.ranker.slo_tight_ttft_ms
    return f32(1 + fresh * f32(world.ranker.slo_tight_bias)) if tight else 1.0


def _score(one: Held, held: list[Held], replicas: int, query: Query, world: World, now: float) -> Row:
    ttl = world.index.ttl_s(query.tenant)
    fresh = f32(max(0.0, min(1.0, 1 - (now - one.seen_at) / ttl)))
    deep = len([other for other in held if other.tokens >= one.tokens and (one.degraded or not other.degraded)])
    score = f32(one.tokens)
    for factor in (
        fresh,
        _pressure(query, world, one.replica, now),
        _slo(fresh, query, world),
        1.0 if replicas <= 1 else f32(1 - deep / replicas),
        f32(world.ranker.tier_weights.get(one.tier, 1.0)),
        f32(0.1) if one.degraded else 1.0,
    ):
        score = f32(score * factor)
    return (one.replica, score, one.tokens, fresh, one.tier)


def _tenant_hot(serving: list[str], query: Query, world: World, now: float) -> list[Row]:
    max_age = world.ranker.tenant_hot_max_age_s
    rows: list[Row] = []
    for replica in serving:
        known = world.index.stats(query.tenant, query.model, replica)
        if max_age <= 0 or known is None:
            continue
        stats, at = known
        if now - at >= max_age or stats.hit_rate < f32(world.ranker.tenant_hot_min_hit_rate):
            continue
        recency = f32(max(0.0, min(1.0, 1 - (now - at) / max_age)))
        score = f32(stats.hit_rate)
        for factor in (recency, _pressure(query, world, replica, now), _slo(recency, query, world)):
            score = f32(score * factor)
        rows.append((replica, score, 0, f32(stats.hit_rate), 0))
    return sorted(rows, key=lambda row: (-row[1], row[0]))
