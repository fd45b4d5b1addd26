"""Steps 6 to 10 of a lookup, and the two additions, over the plain index."""

from __future__ import annotations

import hashlib

import pytest

from terraflow.core.affinity import two_named
from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.question import Query
from terraflow.hints.deciding.rank import RankerConfig, float32
from terraflow.hints.index.said import TenantRule
from terraflow.hints.policy.policies import CachePolicy, Eviction
from terraflow.hints.words import Entry, Stats
from tests.hints.deciding.lookups import (
    AFFINE,
    CHAIN,
    EMPTY,
    MATCH,
    NOW,
    OTHER,
    SCOPE,
    ask,
    chain,
    exact,
    report,
    told,
)
from tests.hints.model import Model

# 6, 7


@pytest.mark.parametrize("name", ["tenant", "model", "scheme"])
def test_an_empty_name_is_no_hint(index: Model, name: str) -> None:
    answer = ask(index, chain(adapter="x", **{name: ""}))
    assert (told(answer), answer.adapter) == (EMPTY, "x")


def test_the_longest_leading_run_counts_by_the_requests_counts(index: Model) -> None:
    report(index, "r2", 5)
    answer = ask(index, chain(block_token_counts=[100, 1, 1, 1, 1, 1, 1, 1]))
    assert [(row.replica, row.matched_tokens) for row in answer.scored] == [("r1", 107), ("r2", 104)]


def test_a_gap_ends_a_run(index: Model) -> None:
    index.evict("t", "m", "r1", CHAIN[5], None, NOW)
    assert ask(index, chain()).scored[0].matched_tokens == 80


def test_a_run_is_as_fresh_and_as_cold_as_its_worst_block(index: Model) -> None:
    report(index, "r3", 4, at=NOW - 900)
    report(index, "r3", 2)
    report(index, "r3", 0, entries=(Entry("", [CHAIN[1]], [32], 3),))
    row = next(row for row in ask(index, chain(4)).scored if row.replica == "r3")
    assert (row.hit_probability, row.tier) == (0.5, 3)


def test_a_match_needs_64_tokens_also_without_a_policy(index: Model) -> None:
    assert told(ask(index, chain(4))) == MATCH
    assert str(ask(index, chain(3)).reason) == AFFINE
    assert told(ask(index, chain(3), CachePolicy(minimum_matched_tokens=48))) == MATCH


def test_the_floor_for_tokens_keeps_the_others(index: Model) -> None:
    report(index, "r2", 3)
    assert told(ask(index, chain())) == MATCH


def test_the_floor_for_scores_drops_all(index: Model) -> None:
    report(index, "r2", 6)
    scores = [row.score for row in ask(index, chain()).scored]
    assert scores == [64.0, 0.0]
    assert len(ask(index, chain(), CachePolicy(routing_floor_score=64.0)).scored) == 2
    assert str(ask(index, chain(), CachePolicy(routing_floor_score=64.5)).reason) == AFFINE


def test_the_floor_is_a_float32(index: Model) -> None:
    report(index, "r1", 0, stats=Stats(pressure=float32(1 - float32(0.1) / 64)))
    score = ask(index, chain(), CachePolicy(routing_floor_score=0.0)).scored[0].score
    policy = CachePolicy(routing_floor_score=score * (1 - 1e-9))
    assert float32(policy.routing_floor_score) == score > policy.routing_floor_score
    assert told(ask(index, chain(), policy)) == MATCH


def test_what_everybody_holds_tells_nobody_apart(index: Model) -> None:
    report(index, "r2")
    assert str(ask(index, chain()).reason) == AFFINE
    answer = ask(index, chain(), CachePolicy(routing_floor_score=0.0))
    assert [(row.replica, row.score) for row in answer.scored] == [("r1", 0.0), ("r2", 0.0)]


def test_an_exact_match_has_the_stored_count(index: Model) -> None:
    assert ask(index, exact(tokens=1)).scored[0].matched_tokens == 128


@pytest.mark.parametrize("counts", [[0] * 8, [-16] * 8, [16, -16] * 4, [0] * 7 + [-1]])
def test_a_sum_of_zero_or_less_is_no_match(index: Model, counts: list[int]) -> None:
    answer = ask(index, chain(block_token_counts=counts), CachePolicy(minimum_matched_tokens=0))
    assert str(answer.reason) == AFFINE


def test_a_sum_beyond_int32_is_answered_as_the_greatest(index: Model) -> None:
    answer = ask(index, chain(block_token_counts=[(1 << 31) - 1] * 8))
    assert answer.scored[0].matched_tokens == (1 << 31) - 1


def test_an_adapter_is_a_partition_of_keys_and_of_nothing_else(index: Model) -> None:
    answer = ask(index, chain(adapter="x"))
    assert (str(answer.reason), answer.adapter) == (AFFINE, "x")
    report(index, "r9", entries=(Entry("x", list(CHAIN), [16 * (at + 1) for at in range(8)], 1),))
    answer = ask(index, chain(adapter="x"))
    assert [(row.replica, row.score) for row in answer.scored] == [("r9", float32(128 * float32(2 / 3)))]


def test_no_input_at_all_is_never_a_match_nor_affinity(index: Model) -> None:
    assert told(ask(index, chain(0))) == EMPTY
    report(index, "r1", 0, stats=Stats(hit_rate=1.0))
    assert told(ask(index, chain(0))) == ("TENANT_HOT", ["r1"])
    assert told(ask(index, chain(0, tenant="q"))) == ("UNKNOWN_TENANT", [])


def test_a_delivered_match_is_credited_and_nothing_else(index: Model) -> None:
    index.govern("t", TenantRule(ttl_s=1800.0, lfu=True, keys_max=None))
    lfu = CachePolicy(eviction=Eviction.LFU, minimum_matched_tokens=96)
    report(index, "r2", 6)
    report(index, "r3", 2)
    assert told(ask(index, chain(), lfu)) == ("PREFIX_MATCH", ["r1", "r2"])
    credited = {
        (replica, at): index._keys[(*SCOPE, "", CHAIN[at])][replica].credits
        for replica, depth in (("r1", 8), ("r2", 6), ("r3", 2))
        for at in range(depth)
    }
    assert credited == {key: int(key[0] != "r3") for key in credited}
    before = [row.credits for rows in index._keys.values() for row in rows.values()]
    for query in (chain(3), exact(b"new"), chain(model="q")):
        assert ask(index, query, lfu).reason is not Lookup.PREFIX_MATCH
    assert [row.credits for rows in index._keys.values() for row in rows.values()] == before


def test_without_lfu_a_use_of_the_best_replica_is_counted(index: Model) -> None:
    report(index, "r2", 6)
    ask(index, chain())
    assert index.hot(now=NOW) == 0
    ask(index, chain())
    assert index.hot(now=NOW) == 8


# The share, an addition


@pytest.mark.parametrize(("share", "code"), [(0.0, "PREFIX_MATCH"), (0.5, "PREFIX_MATCH"), (0.51, AFFINE)])
def test_a_match_may_have_to_be_a_share_of_the_request(index: Model, share: float, code: str) -> None:
    query = chain(block_hashes=[*CHAIN, *OTHER], block_token_counts=[16] * 16)
    assert str(ask(index, query, share_min=share).reason) == code
    assert str(ask(index, query, CachePolicy(minimum_matched_share=share), share_min=0.9).reason) == code


def test_a_match_below_the_share_tells_nobody_apart_and_may_be_hot(index: Model) -> None:
    report(index, "r2", 4)
    assert [row.score for row in ask(index, chain(), share_min=0.6).scored] == [64.0]
    report(index, "r2", 0, stats=Stats(hit_rate=1.0))
    assert str(ask(index, exact(tokens=129), share_min=1.0).reason) == "TENANT_HOT"
    assert told(ask(index, exact(tokens=0), share_min=1.0)) == MATCH


# 8


def test_a_miss_of_an_exact_hash_may_be_hot(index: Model) -> None:
    report(index, "r1", 0, stats=Stats(hit_rate=0.5), at=NOW - 150)
    report(index, "r2", 0, stats=Stats(hit_rate=0.75, pressure=0.5))
    report(index, "r3", 0, stats=Stats(hit_rate=1.0))
    rows = [tuple(row) for row in ask(index, exact(b"new")).scored]
    assert rows == [("r2", 0.375, 0, 0.75, 0), ("r1", 0.25, 0, 0.5, 0)]


@pytest.mark.parametrize(
    ("query", "policy"),
    [
        (chain(hashes=block_keys(range(9, 300))), CachePolicy()),
        (exact(), CachePolicy(minimum_matched_tokens=129)),
        (exact(), CachePolicy(routing_floor_score=1e9)),
        (exact(b"new"), CachePolicy(tenant_hot=False)),
    ],
    ids=["a chain", "a hit below the tokens", "a hit below the score", "switched off"],
)
def test_what_never_becomes_hot(index: Model, query: Query, policy: CachePolicy) -> None:
    report(index, "r1", 0, stats=Stats(hit_rate=1.0))
    assert str(ask(index, query, policy).reason) == AFFINE


@pytest.mark.parametrize(
    ("stats", "age", "ranker"),
    [
        (Stats(hit_rate=0.0999), 0, RankerConfig()),
        (Stats(hit_rate=1.0), 300, RankerConfig()),
        (Stats(hit_rate=1.0), 0, RankerConfig(tenant_hot_max_age_s=0)),
    ],
    ids=["too cold", "too old", "switched off"],
)
def test_who_is_not_hot(index: Model, stats: Stats, age: float, ranker: RankerConfig) -> None:
    report(index, "r1", 0, stats=stats, at=NOW - age)
    assert str(ask(index, exact(b"new"), ranker=ranker).reason) == AFFINE


# 9


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (chain(tenant="q"), "UNKNOWN_TENANT"),
        (chain(model="q"), "UNKNOWN_MODEL"),
        (chain(scheme="q"), "UNKNOWN_HASH_SCHEME"),
        (exact(scheme="q"), "UNKNOWN_HASH_SCHEME"),
    ],
)
def test_unknown_names_are_told(index: Model, query: Query, code: str) -> None:
    assert told(ask(index, query)) == (code, [])


def test_an_empty_index_is_no_hint() -> None:
    assert told(ask(Model(), chain())) == EMPTY


def test_what_is_past_its_ttl_counts_for_nothing(index: Model) -> None:
    assert told(ask(index, chain(), now=NOW + 1_790)) == ("PREFIX_MATCH", ["r1"])
    assert told(ask(index, chain(), now=NOW + 1_800)) == EMPTY
    report(index, "r1", tenant="u", at=NOW + 1_000)
    assert told(ask(index, chain(), now=NOW + 1_800)) == ("UNKNOWN_TENANT", [])


# 10


def test_affinity_is_the_formula(index: Model) -> None:
    serving = ["r1", "r2"]
    for number in range(20):
        hashes = block_keys(range(9_000 + number, 9_064 + number))
        seed = b"".join([b"\0\0\0\x08" + one for one in hashes])
        at = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") % 2
        answer = ask(index, chain(4, hashes=hashes))
        assert [tuple(row) for row in answer.scored] == [(serving[at], 0.0, 0, 0.0, 0)]
        one = b"%d" % number
        at = int.from_bytes(hashlib.sha256(one).digest()[:8], "big") % 2
        assert told(ask(index, exact(one))) == (AFFINE, [serving[at]])


def test_lengths_keep_hashes_apart(index: Model) -> None:
    picks = {
        tuple(told(ask(index, chain(block_hashes=hashes, block_token_counts=[1, 1])))[1])
        for hashes in ([b"ab%d" % n, b"cd"] for n in range(8))
    }
    assert len(picks) == 2
    seed = b"\0\0\0\x01a\0\0\0\x03bcd"
    at = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") % 2
    query = chain(block_hashes=[b"a", b"bcd"], block_token_counts=[1, 1])
    assert told(ask(index, query)) == (AFFINE, [["r1", "r2"][at]])


def test_affinity_may_be_off(index: Model) -> None:
    assert told(ask(index, exact(b"new"), CachePolicy(affinity=False))) == EMPTY


# The assignment memory, an addition


def test_affinity_takes_the_less_loaded_of_two(index: Model) -> None:
    for replica in ("r3", "r4", "r5"):
        report(index, replica, 1, hashes=OTHER)
    serving = [f"r{number}" for number in range(1, 6)]
    for query, known_by in ((exact(b"new"), b"new"), (chain(2, hashes=[b"no", b"ne"]), b"ne")):
        assigned = Assigned()
        first, second = (serving[at] for at in two_named(serving, known_by))
        assert told(ask(index, query, assigned=assigned)) == (AFFINE, [first])
        assigned.sent(SCOPE, "", first, [], 1_000, NOW)
        assert told(ask(index, query, assigned=assigned)) == (AFFINE, [second])
        assigned.sent(SCOPE, "", second, [], 2_000, NOW)
        assert told(ask(index, query, assigned=assigned)) == (AFFINE, [first])


def test_a_burst_of_one_prefix_stays_together(index: Model) -> None:
    assigned = Assigned()
    hashes = block_keys(range(7_000, 7_256))
    first = ask(index, chain(16, hashes=hashes), assigned=assigned, share_min=0.05).scored[0].replica
    assigned.sent(SCOPE, "", first, hashes, 256, NOW)
    for number in range(16):
        own = block_keys([*range(7_000, 7_240), *range(number, number + 16)])
        answer = ask(index, chain(16, hashes=own), assigned=assigned, share_min=0.05)
        assert told(answer) == ("PREFIX_MATCH", [first])
        assert 240 <= answer.scored[0].matched_tokens <= 256
        assigned.sent(SCOPE, "", first, own, 256 - answer.scored[0].matched_tokens, NOW)


def test_what_was_just_sent_is_a_match_where_nobody_reported_or_joined() -> None:
    assigned = Assigned()
    assigned.sent(SCOPE, "", "r1", CHAIN, 128, NOW)
    assert told(ask(Model(), chain(), assigned=assigned, share_min=0.05)) == MATCH


def test_who_joined_counts_before_it_reported(index: Model) -> None:
    assigned = Assigned()
    assigned.join(SCOPE, [f"r{number}" for number in range(1, 9)])
    picks = {told(ask(index, exact(b"%d" % number), assigned=assigned))[1][0] for number in range(200)}
    assert picks == {f"r{number}" for number in range(1, 9)}
    assert ask(index, chain(), assigned=assigned).scored[0].score == float32(128 * 7 / 8)
    assert told(ask(Model(), chain(), assigned=assigned)) == EMPTY
