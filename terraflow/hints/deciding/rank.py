"""What replicas hold, to scores and their order.

1. score = matched × freshness × pressure × slo × distinguishing, and then × tier × degraded, which are 1 unless set.
2. Every factor is computed in float64 and rounded once to float32; the products are taken from left to right, each
   rounded to float32. A product of two float32 is exact in float64, so that rounding it is what float32 hardware does.
3. Best score first, then the lesser id.
4. A replica of no freshness or of no matched token is no candidate, and counts for no other's factor.
5. A degraded match does not count in `distinguishing` of one that is not: a dead engine that held a prefix would
   otherwise make its live twin look like nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import msgspec

from terraflow.hints.words import Held, Stats

INT32_MAX = (1 << 31) - 1

StatsOf: TypeAlias = Callable[[str], tuple[Stats, float] | None]
"""A replica's last stats and when they came."""


def float32(value: float) -> float:
    """The nearest float32, as a float."""
    return array("f", (value,))[0]


class RankerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The contract's knobs. 0 switches each off."""

    pressure_weight: float = 1.0
    slo_tight_ttft_ms: int = 200
    slo_tight_bias: float = 1.0
    tenant_hot_max_age_s: float = 300.0
    tenant_hot_min_hit_rate: float = 0.1
    tier_weights: Mapping[int, float] = {}
    """By tier; 1.0 for one that is not named, as in the reference, which scores none."""
    degraded_weight: float = 0.1
    """For a match of which some block stems from before its source was lost."""


class Weighing(NamedTuple):
    """What scores are weighed by besides what is held: the TTL of the tenant's entries, the caller's hurry (0: none),
    the replicas' statistics, the knobs, and when; times are monotonic seconds."""

    ttl_s: float
    ttft_ms: int
    stats_of: StatsOf
    config: RankerConfig
    now: float


class Scored(NamedTuple):
    """One replica of an answer. `score` and `hit_probability` are float32 values."""

    replica: str
    score: float
    matched_tokens: int
    hit_probability: float
    tier: int


class Candidates(NamedTuple):
    """Replicas side by side with the factors of their scores, each a column."""

    replicas: Sequence[str]
    blocks: Sequence[int]
    matched: Sequence[int]
    tiers: Sequence[int]
    freshness: Sequence[float]
    pressure: Sequence[float]
    slo: Sequence[float]
    distinguishing: Sequence[float]
    tier: Sequence[float]
    degraded: Sequence[float]
    scores: Sequence[float]
    probability: Sequence[float]
    """The estimated hit probability: freshness, or the hit rate of TENANT_HOT."""

    def ranked(self) -> list[Scored]:
        """Best first; see rule 3. A stable sort by score after one by id is both at once."""
        rows = list(map(Scored, self.replicas, self.scores, self.matched, self.probability, self.tiers))
        rows.sort(key=_REPLICA)
        rows.sort(key=_SCORE, reverse=True)
        return rows


_REPLICA, _SCORE = itemgetter(0), itemgetter(1)
NOBODY = Candidates((), (), (), (), (), (), (), (), (), (), (), ())


def freshness(age_s: float, ttl_s: float) -> float:
    """1 for what was just seen, 0 from the TTL on; not yet rounded."""
    if ttl_s <= 0 or age_s >= ttl_s:
        return 0.0
    return 1.0 if age_s <= 0 else 1.0 - age_s / ttl_s


def pressure_factor(pressure: float, config: RankerConfig) -> float:
    """How much of a score a replica of that pressure keeps, 0 … 1; not yet rounded."""
    return min(1.0, max(0.0, 1.0 - float32(config.pressure_weight) * pressure))


def slo_bias(ttft_ms: int, config: RankerConfig) -> float:
    """What a request in a hurry adds for freshness; 0 for any other."""
    tight = config.slo_tight_bias > 0 and 0 < ttft_ms < config.slo_tight_ttft_ms
    return float32(config.slo_tight_bias) if tight else 0.0


def distinguishing(at_least_as_long: int, total: int) -> float:
    """How much a match tells one replica from the others; not yet rounded."""
    if total <= 1:
        return 1.0
    return 0.0 if at_least_as_long >= total else 1.0 - at_least_as_long / total


def _pressures(
    replicas: Sequence[str], stats_of: StatsOf, ttl_s: float, config: RankerConfig, now: float
) -> list[float] | None:
    """Each replica's factor; None when nobody has said a word within the TTL."""
    found = None
    for at, known in enumerate(map(stats_of, replicas)):
        if known is not None and now - known[1] < ttl_s:
            found = found or [1.0] * len(replicas)
            found[at] = pressure_factor(known[0].pressure, config)
    return found


def score_matches(held: Iterable[Held], total: int, by: Weighing) -> Candidates:
    """What `held` is worth among the `total` replicas of its scope."""
    ttl_s, ttft_ms, stats_of, config, now = by
    fresh: list[float] = []
    kept: list[Held] = []
    for row in held:
        if row.tokens > 0 and (left := freshness(now - row.seen_at, ttl_s)) > 0.0:
            fresh.append(left)
            kept.append(row)
    if not kept:
        return NOBODY
    replicas, blocks, tokens, _, tiers, degraded = zip(*kept, strict=True)
    matched = [min(count, INT32_MAX) for count in tokens] if max(tokens) > INT32_MAX else tokens
    freshes = array("f", fresh)
    ones = array("f", (1.0,) * len(kept))
    pressing = _pressures(replicas, stats_of, ttl_s, config, now)
    pressures = ones if pressing is None else array("f", pressing)
    bias = slo_bias(ttft_ms, config)
    slos = array("f", [1.0 + value * bias for value in freshes]) if bias else ones
    of_tier = array("f", [config.tier_weights.get(tier, 1.0) for tier in tiers]) if config.tier_weights else ones
    of_source = array("f", [config.degraded_weight if lost else 1.0 for lost in degraded]) if True in degraded else ones
    powers = array("f", _powers(matched, degraded, total))
    scores = array("f", matched)
    for factors in (freshes, pressures, slos, powers, of_tier, of_source):
        if factors is not ones:
            scores = array("f", [score * factor for score, factor in zip(scores, factors, strict=True)])
    return Candidates(
        replicas, blocks, matched, tiers, freshes, pressures, slos, powers, of_tier, of_source, scores, freshes
    )


def _powers(matched: Sequence[int], degraded: Sequence[bool], total: int) -> list[float]:
    """How much each match tells its replica apart: by how many are at least as long, and count for it (rule 5)."""
    powers = _apart(matched, total)
    if True in degraded:
        sound = [length for length, lost in zip(matched, degraded, strict=True) if not lost]
        among = iter(_apart(sound, total))
        powers = [power if lost else next(among) for power, lost in zip(powers, degraded, strict=True)]
    return powers


def _apart(lengths: Sequence[int], total: int) -> list[float]:
    count, ascending = len(lengths), sorted(lengths)
    if not count or ascending[0] == ascending[-1]:
        return [distinguishing(count, total)] * count
    return [distinguishing(count - bisect_left(ascending, length), total) for length in lengths]


def score_tenant_hot(replicas: Iterable[str], by: Weighing) -> Candidates:
    """Which of a scope's `replicas` have lately served the tenant well: score = hit rate × recency × pressure × slo."""
    ttl_s, ttft_ms, stats_of, config, now = by
    max_age_s = config.tenant_hot_max_age_s
    if max_age_s <= 0:
        return NOBODY
    least, bias = float32(config.tenant_hot_min_hit_rate), slo_bias(ttft_ms, config)
    warm: list[str] = []
    rates, recencies, pressures = array("f"), array("f"), array("f")
    for replica in replicas:
        known = stats_of(replica)
        if known is None or now - known[1] >= max_age_s or known[0].hit_rate < least:
            continue
        stats, at = known
        warm.append(replica)
        rates.append(stats.hit_rate)
        recencies.append(freshness(now - at, max_age_s))
        pressures.append(pressure_factor(stats.pressure, config) if now - at < ttl_s else 1.0)
    if not warm:
        return NOBODY
    slos = array("f", [1.0 + value * bias for value in recencies])
    none = (0,) * len(warm)
    ones = array("f", (1.0,) * len(warm))
    scores = rates
    for factors in (recencies, pressures, slos):
        scores = array("f", [score * factor for score, factor in zip(scores, factors, strict=True)])
    return Candidates(warm, none, none, none, recencies, pressures, slos, ones, ones, ones, scores, rates)
