"""What replicas hold, to scores and their order.

1. score = matched × freshness × pressure × slo × distinguishing, and then × tier × degraded, which are 1 unless set.
2. Every factor is computed in float64 and rounded once to float32; the products are taken from left to right, each
   rounded to float32. A product of two float32 is exact in float64, so that rounding it is what float32 hardware does.
3. Best score first, then the lesser id.
4. A replica of no freshness or of no matched token is no candidate, and counts for no other's factor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        """Best first."""
        rows = map(Scored, self.replicas, self.scores, self.matched, self.probability, self.tiers)
        return sorted(rows, key=_order)


NOBODY = Candidates((), (), (), (), (), (), (), (), (), (), (), ())


def _order(row: Scored) -> tuple[float, str]:
    return -row.score, row.replica


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


def _pressures(replicas: Sequence[str], stats_of: StatsOf, oldest: float, config: RankerConfig) -> list[float]:
    found = []
    for replica in replicas:
        known = stats_of(replica)
        current = known is not None and known[1] > oldest
        found.append(pressure_factor(known[0].pressure, config) if known is not None and current else 1.0)
    return found


def _times(left: Sequence[float], right: Sequence[float]) -> array[float]:
    return array("f", [a * b for a, b in zip(left, right, strict=True)])


def score_matches(
    held: Iterable[Held],
    *,
    total: int,
    ttl_s: float,
    ttft_ms: int,
    stats_of: StatsOf,
    config: RankerConfig,
    now: float,
) -> Candidates:
    """What `held` is worth among the `total` replicas of its scope. Times are monotonic seconds."""
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
    pressures = array("f", _pressures(replicas, stats_of, now - ttl_s, config))
    bias = slo_bias(ttft_ms, config)
    slos = array("f", [1.0 + value * bias for value in freshes] if bias else (1.0,) * len(kept))
    longest = sorted(matched, reverse=True)
    powers = array("f", [distinguishing(_at_least(longest, count), total) for count in matched])
    scores = _times(_times(_times(_times(array("f", matched), freshes), pressures), slos), powers)
    ones = array("f", (1.0,) * len(kept))
    of_tier = array("f", [config.tier_weights.get(tier, 1.0) for tier in tiers]) if config.tier_weights else ones
    of_source = array("f", [config.degraded_weight if lost else 1.0 for lost in degraded]) if True in degraded else ones
    if of_tier is not ones:
        scores = _times(scores, of_tier)
    if of_source is not ones:
        scores = _times(scores, of_source)
    return Candidates(
        replicas, blocks, matched, tiers, freshes, pressures, slos, powers, of_tier, of_source, scores, freshes
    )


def _at_least(longest: list[int], count: int) -> int:
    """How many of a descending list are not below `count`, which is in it."""
    return len(longest) - longest[::-1].index(count)


def score_tenant_hot(
    replicas: Iterable[str],
    *,
    ttl_s: float,
    ttft_ms: int,
    stats_of: StatsOf,
    config: RankerConfig,
    now: float,
) -> Candidates:
    """Which of a scope's `replicas` have lately served the tenant well: score = hit rate × recency × pressure × slo."""
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
    scores = _times(_times(_times(rates, recencies), pressures), slos)
    return Candidates(warm, none, none, none, recencies, pressures, slos, ones, ones, ones, scores, rates)
