"""Scores in float32, against numbers worked out by hand and against exact arithmetic rounded at each step."""

from __future__ import annotations

import struct
from fractions import Fraction
from random import Random

import pytest

from terraflow.hints.deciding.rank import (
    RankerConfig,
    Scored,
    Weighing,
    distinguishing,
    float32,
    freshness,
    pressure_factor,
    score_matches,
    score_tenant_hot,
    slo_bias,
)
from terraflow.hints.words import Held, Stats

CONFIG = RankerConfig()


def nearest(exact: Fraction) -> float:
    """The float32 nearest to an exact number, ties to even, found without a float's help."""
    if exact == 0:
        return 0.0
    exponent = 0
    while exact / Fraction(2) ** exponent >= 1 << 24:
        exponent += 1
    while exact / Fraction(2) ** exponent < 1 << 23:
        exponent -= 1
    return float(round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent)


def test_nearest_is_what_the_machine_calls_float32() -> None:
    luck = Random(0)
    for value in (luck.uniform(0, 1) * 10 ** luck.randint(-6, 9) for _ in range(2_000)):
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
        assert nearest(Fraction(value)) == float32(value) == rounded


def test_products_are_exact_and_rounded_once_each() -> None:
    luck = Random(1)
    for _ in range(1_000):
        age, ttl, pressure = luck.uniform(0, 50), luck.uniform(60, 2_000), float32(luck.random())
        tokens, total, ttft = luck.randint(1, 1 << 27), luck.randint(2, 9), luck.choice((0, 100))
        stats = (Stats(pressure=pressure), 1_000.0)
        (row,) = score_matches(
            [Held("r", 1, tokens, 1_000.0 - age, 1, False)],
            total, Weighing(ttl, ttft, lambda _, stats=stats: stats, CONFIG, 1_000.0),
        ).ranked()  # fmt: skip
        fresh = float32(1 - (1_000.0 - (1_000.0 - age)) / ttl)
        score = nearest(Fraction(tokens))
        for factor in (fresh, float32(1 - pressure), float32(1 + fresh) if ttft else 1.0, float32(1 - 1 / total)):
            score = nearest(Fraction(score) * Fraction(factor))
        assert (row.score, row.hit_probability) == (score, fresh)


@pytest.mark.parametrize(
    ("age", "ttl", "fresh"), [(0, 10, 1), (-5, 10, 1), (2.5, 10, 0.75), (10, 10, 0), (11, 10, 0), (0, 0, 0), (-1, 0, 0)]
)
def test_freshness(age: float, ttl: float, fresh: float) -> None:
    assert freshness(age, ttl) == fresh


@pytest.mark.parametrize(
    ("pressure", "weight", "factor"),
    [(0, 1, 1), (0.25, 1, 0.75), (1, 1, 0), (2, 1, 0), (-1, 1, 1), (1, 0, 1), (0.5, 0.5, 0.75), (0.5, 4, 0)],
)
def test_pressure(pressure: float, weight: float, factor: float) -> None:
    assert pressure_factor(pressure, RankerConfig(pressure_weight=weight)) == factor


@pytest.mark.parametrize(("ttft", "bias"), [(-1, 0), (0, 0), (1, 1), (199, 1), (200, 0), (500, 0)])
def test_slo(ttft: int, bias: float) -> None:
    assert slo_bias(ttft, CONFIG) == bias
    assert slo_bias(ttft, RankerConfig(slo_tight_bias=0)) == 0
    assert slo_bias(ttft, RankerConfig(slo_tight_ttft_ms=0)) == 0


@pytest.mark.parametrize(
    ("deep", "total", "power"), [(1, 0, 1), (1, 1, 1), (1, 2, 0.5), (2, 2, 0), (3, 2, 0), (1, 4, 0.75), (3, 4, 0.25)]
)
def test_distinguishing(deep: int, total: int, power: float) -> None:
    assert distinguishing(deep, total) == power


def _rows(held: list[Held], total: int = 4, config: RankerConfig = CONFIG) -> list[Scored]:
    return score_matches(held, total, Weighing(100.0, 0, lambda _: None, config, 0.0)).ranked()


def test_a_deeper_match_is_told_apart_from_those_as_deep_or_deeper() -> None:
    held = [Held("a", 1, 10, 0.0, 1, False), Held("b", 2, 20, 0.0, 1, False), Held("c", 2, 20, 0.0, 1, False)]
    assert [(row.replica, row.score) for row in _rows(held)] == [("b", 10.0), ("c", 10.0), ("a", 2.5)]


def test_equal_scores_go_by_id() -> None:
    ids = ["r10", "r2", "R", "ä", "r", "r1"]
    rows = _rows([Held(name, 1, 10, 0.0, 1, False) for name in ids], total=9)
    assert [row.replica for row in rows] == sorted(ids)


def test_who_is_no_candidate_counts_for_nobody() -> None:
    held = [Held("a", 1, 10, 0.0, 1, False), Held("b", 1, 0, 0.0, 1, False), Held("c", 1, 10, -100.0, 1, False)]
    assert _rows(held) == [Scored("a", 7.5, 10, 1.0, 1)]
    assert _rows(held[1:]) == [] == _rows([])


def test_a_degraded_match_counts_a_tenth_and_a_tier_its_weight() -> None:
    held = [Held("a", 1, 100, 0.0, 2, True), Held("b", 1, 64, 0.0, 1, False)]
    assert [(row.replica, row.score) for row in _rows(held)] == [("b", 48.0), ("a", float32(75 * float32(0.1)))]
    config = RankerConfig(tier_weights={2: 0.5}, degraded_weight=1.0)
    assert [(row.replica, row.score) for row in _rows(held, config=config)] == [("b", 48.0), ("a", 37.5)]


def test_a_dead_engine_does_not_make_its_live_twin_look_like_nothing() -> None:
    held = [Held("engine-1", 38, 608, 0.0, 1, True), Held("engine-2", 37, 592, 0.0, 1, False)]
    found = [(row.replica, row.score) for row in _rows(held, total=2)]
    assert found == [("engine-2", 296.0), ("engine-1", float32(304 * float32(0.1)))]
    lost = [row._replace(degraded=True) for row in held]
    assert [row.replica for row in _rows(lost, total=2)] == ["engine-1", "engine-2"]


def test_hot_is_hit_rate_by_recency_by_pressure_by_slo() -> None:
    stats = {
        "a": (Stats(hit_rate=0.5, pressure=0.25), -150.0),
        "b": (Stats(hit_rate=0.25), 0.0),
        "old": (Stats(hit_rate=1.0), -300.0),
        "cold": (Stats(hit_rate=0.09), 0.0),
    }
    found = score_tenant_hot([*stats, "silent"], Weighing(1_800.0, 100, stats.get, CONFIG, 0.0)).ranked()
    assert found == [Scored("b", 0.5, 0, 0.25, 0), Scored("a", 0.28125, 0, 0.5, 0)]


def test_the_least_hit_rate_is_a_float32() -> None:
    stats = (Stats(hit_rate=float32(0.7)), 0.0)
    config = RankerConfig(tenant_hot_min_hit_rate=0.7)
    assert stats[0].hit_rate < 0.7
    found = score_tenant_hot(["r"], Weighing(9.0, 0, lambda _: stats, config, 0.0))
    assert found.replicas == ["r"]
