"""A lookup taken apart: each replica's reason, and no trace left behind."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.explain import Explanation, explain
from terraflow.hints.deciding.question import Query
from terraflow.hints.policy.policies import CachePolicy
from terraflow.hints.words import Stats
from tests.hints.deciding.lookups import NOW, OTHER, SCOPE, chain, exact, grounds, report
from tests.hints.model import Model


def shown(index: Model, query: Query, policy: CachePolicy | None = None, **more: Any) -> Explanation:
    """The explanation, with the defaults of a service that stands alone."""
    now = more.pop("now", NOW)
    return explain(query, grounds(index, policy, **more), now)


@pytest.fixture
def index() -> Model:
    """Four replicas: all of the chain, half of it, too little of it, none of it."""
    index = Model()
    for replica, depth in (("r1", 8), ("r2", 5), ("r3", 2)):
        report(index, replica, depth)
    report(index, "r4", hashes=OTHER)
    return index


def test_a_match_is_explained(index: Model) -> None:
    report(index, "r2", 0, stats=Stats(pressure=0.5))
    told = shown(index, chain())
    assert (str(told.reason), told.step, told.blocks, told.input_tokens, told.replicas_in_scope) == (
        "PREFIX_MATCH", "match", 8, 128, 4,
    )  # fmt: skip
    assert [(row.replica, row.answered, row.blocks, row.matched_tokens, row.why) for row in told.rows] == [
        ("r1", True, 8, 128, "the best score"),
        ("r2", True, 5, 80, "a lesser score, or the same and a greater id"),
        ("r3", False, 2, 32, "holds less than minimumMatchedTokens, 64"),
        ("r4", False, 0, 0, "holds nothing of the input"),
    ]
    factors = told.rows[1].factors
    assert factors is not None
    assert (factors.basis, factors.freshness, factors.pressure, factors.slo, factors.distinguishing) == (
        80,
        1,
        0.5,
        1,
        0.5,
    )
    assert told.rows[1].score == told.scored[1].score == 20.0
    assert index.hot(now=NOW) == 0


@pytest.mark.parametrize(
    ("query", "policy", "more", "why"),
    [
        (chain(), CachePolicy(routing_floor_score=1e6), {}, "the best score is below routingFloorScore, 1e+06"),
        (chain(), CachePolicy(minimum_prefix_tokens=129), {}, "the input is below minimumPrefixTokens, 129"),
        (chain(), CachePolicy(minimum_matched_tokens=129), {}, "holds less than minimumMatchedTokens, 129"),
        (chain(16, block_hashes=[b"%d" % at for at in range(16)]), None, {}, "holds nothing of the input"),
        (chain(block_token_counts=[0] * 8), None, {}, "what it holds counts no tokens"),
        (chain(), CachePolicy(minimum_matched_share=1.01), {}, "holds less than a share of 1.01"),
    ],
)
def test_why_a_replica_was_passed_over(
    index: Model, query: Query, policy: CachePolicy | None, more: dict[str, Any], why: str
) -> None:
    told = shown(index, query, policy, **more)
    assert str(told.reason) == "AFFINITY_HINT"
    assert told.rows[0].why == "the prompt's fingerprint chose it"
    assert why in {row.why for row in told.rows[1:]}
    assert {row.replica for row in told.rows} == {"r1", "r2", "r3", "r4"}


def test_hot_is_explained(index: Model) -> None:
    report(index, "r4", 0, stats=Stats(hit_rate=0.5), at=NOW - 150)
    told = shown(index, exact(b"new"))
    first = told.rows[0]
    assert (str(told.reason), first.replica, first.score, first.why) == ("TENANT_HOT", "r4", 0.25, "the best score")
    assert first.factors is not None and (first.factors.basis, first.factors.freshness) == (0.5, 0.5)


def test_what_was_decided_before_the_index_was_asked_has_no_rows(index: Model) -> None:
    told = shown(index, chain(block_token_counts=[1]))
    assert (str(told.reason), told.step, told.rows) == ("NO_HINT", "input", [])
    assert told.why == "the chain has 8 block_hashes and 1 block_token_counts: give one count for each hash"


def test_loads_are_shown_where_they_are_known(index: Model) -> None:
    assigned = Assigned()
    assigned.sent(SCOPE, "", "r1", [b"else"], 500_000, NOW)
    told = shown(index, chain(), assigned=assigned)
    by = {row.replica: row for row in told.rows}
    assert (by["r1"].in_flight, by["r1"].load_tokens, by["r2"].in_flight) == (1, 500_000, 0)
    assert (by["r1"].answered, by["r1"].why) == (False, "too busy for what it saves")
