"""Steps 1 to 5 of a lookup: who may ask, until when, and what counts as input; and the limits."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.lookup import STEPS
from terraflow.hints.deciding.question import Query
from terraflow.hints.policy.policies import CachePolicy, Eviction
from terraflow.hints.words import (
    BLOCKS_MAX,
    IDENTIFIER_BYTES_MAX,
    PROBE_TENANT,
    PROMPT_TEXT_BYTES_MAX,
    TOKEN_IDS_MAX,
    Entry,
    Stats,
)
from tests.hints.deciding.lookups import (
    AFFINE,
    CHAIN,
    EMPTY,
    MATCH,
    NOW,
    OTHER,
    TOKENS,
    ask,
    chain,
    exact,
    report,
    told,
)
from tests.hints.model import Model

# 1, 2


def test_the_probes_tenant_and_foreign_tenants_are_not_looked_up(index: Model) -> None:
    report(index, "r1", tenant=PROBE_TENANT)
    late = {"expired": lambda: True}
    required = CachePolicy(require_chain=True)
    assert told(ask(index, chain(tenant=PROBE_TENANT), **late)) == EMPTY
    assert told(ask(index, exact(foreign=True), required, **late)) == EMPTY


@pytest.mark.parametrize("calls", range(1, len(STEPS) + 1))
def test_a_deadline_may_pass_at_any_step(index: Model, calls: int) -> None:
    count = 0

    def expired() -> bool:
        nonlocal count
        count += 1
        return count >= calls

    answer = ask(index, exact(b"stranger"), CachePolicy(affinity=False), expired=expired)
    assert told(answer) == ("TIMEOUT", [])
    assert count == calls


def test_what_comes_too_late_is_not_credited(index: Model) -> None:
    late = iter([False] * 5 + [True])
    lfu = CachePolicy(eviction=Eviction.LFU)
    assert told(ask(index, chain(), lfu, expired=lambda: next(late))) == ("TIMEOUT", [])
    assert index.hot(now=NOW) == 0


def test_the_ids_of_a_text_are_echoed_although_it_is_late(index: Model) -> None:
    late = iter([False, False, True])
    answer = ask(index, Query(tenant="t", model="m", scheme="s", prompt_text="x" * 32), expired=lambda: next(late))
    assert (str(answer.reason), list(answer.token_ids)) == ("TIMEOUT", [120] * 32)


# 3


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (chain(), "PREFIX_MATCH"),
        (chain(block_token_counts=[16] * 7), "POLICY_REQUIRES_CHAIN"),
        (chain(block_hashes=[*CHAIN[:7], b""]), "POLICY_REQUIRES_CHAIN"),
        (chain(0), "POLICY_REQUIRES_CHAIN"),
        (exact(), "POLICY_REQUIRES_CHAIN"),
        (chain(0, token_ids=TOKENS), "POLICY_REQUIRES_CHAIN"),
        (chain(0, prompt_text="x" * 64), "POLICY_REQUIRES_CHAIN"),
        (chain(0, tenant="t", scheme=""), "POLICY_REQUIRES_CHAIN"),
    ],
)
def test_a_policy_may_require_a_chain_of_the_wire(index: Model, query: Query, code: str) -> None:
    assert str(ask(index, query, CachePolicy(require_chain=True)).reason) == code


# 4


@pytest.mark.parametrize(
    "query",
    [
        chain(block_token_counts=[16] * 7),
        chain(block_hashes=[], block_token_counts=[16]),
        chain(block_hashes=[*CHAIN[:7], b""]),
        chain(block_token_counts=[], prefix_hash=b"P", token_ids=TOKENS),
    ],
    ids=["counts missing", "hashes missing", "an empty hash", "other inputs beside it"],
)
def test_a_malformed_chain_is_no_hint(index: Model, query: Query) -> None:
    assert told(ask(index, query)) == EMPTY


@pytest.mark.parametrize(
    "query",
    [chain(0, token_ids=TOKENS), chain(0, token_ids=[*TOKENS, 7, 7])],
    ids=["whole blocks", "and a part"],
)
def test_token_ids_are_fingerprinted_by_block(index: Model, query: Query) -> None:
    answer = ask(index, query)
    assert told(answer) == MATCH
    assert (answer.scored[0].matched_tokens, list(answer.token_ids)) == (128, [])


def test_blocks_may_have_another_size(index: Model) -> None:
    report(index, "r3", 2, hashes=block_keys(range(900, 1000), 50))
    query = chain(0, token_ids=range(900, 1001))
    answer = ask(index, query, CachePolicy(minimum_matched_tokens=100), block_tokens=50)
    assert [(row.replica, row.matched_tokens) for row in answer.scored] == [("r3", 100)]


@pytest.mark.parametrize("ids", [[], [1] * 15, [1 << 32] * 16, [-1] * 16])
def test_token_ids_that_make_no_block_are_no_hint(index: Model, ids: list[int]) -> None:
    assert told(ask(index, chain(0, token_ids=ids))) == EMPTY


def test_a_text_is_tokenized_and_its_ids_are_echoed(index: Model) -> None:
    text = "a prompt of some length " * 6
    report(index, "r3", 8, hashes=block_keys(list(text.encode())))
    answer = ask(index, chain(0, prompt_text=text))
    assert told(answer) == ("PREFIX_MATCH", ["r3"])
    assert bytes(answer.token_ids) == text.encode()


def test_a_text_of_less_than_a_block_is_echoed_without_hint(index: Model) -> None:
    answer = ask(index, chain(0, prompt_text="short"))
    assert (told(answer), bytes(answer.token_ids)) == (EMPTY, b"short")


@pytest.mark.parametrize("more", [{"tokenizers": None}, {}], ids=["no tokenizers", "not this model's"])
def test_a_text_that_cannot_be_tokenized_is_no_hint(index: Model, more: dict[str, Any]) -> None:
    model = "m" if more else "q"
    answer = ask(index, chain(0, model=model, prompt_text="x" * 64), **more)
    assert (told(answer), list(answer.token_ids), answer.adapter) == (EMPTY, [], "")


def test_explicit_hashes_come_before_ids_and_ids_before_text(index: Model) -> None:
    assert told(ask(index, chain(hashes=OTHER, token_ids=TOKENS))) == ("PREFIX_MATCH", ["r2"])
    assert told(ask(index, chain(hashes=OTHER, prefix_hash=b"P"))) == ("PREFIX_MATCH", ["r2"])
    assert told(ask(index, exact(token_ids=range(5_000, 5_128)))) == MATCH
    answer = ask(index, chain(0, token_ids=TOKENS, prompt_text="x" * 64))
    assert (told(answer), list(answer.token_ids)) == (MATCH, [])


def test_with_chain_matching_off(index: Model) -> None:
    off = CachePolicy(chain_matching=False)
    report(index, "r3", 0, entries=(Entry("", [CHAIN[-1]], [77], 1),))
    assert told(ask(index, chain(), off)) == EMPTY
    assert told(ask(index, chain(prefix_hash=b"P"), off)) == MATCH
    by_ids = ask(index, chain(token_ids=[*TOKENS, 1]), off)
    assert [(row.replica, row.matched_tokens) for row in by_ids.scored] == [("r1", 128), ("r3", 77)]
    assert told(ask(index, chain(block_token_counts=[], prefix_hash=b"P"), off)) == MATCH
    assert told(ask(index, chain(block_token_counts=[], prefix_hash=b"other"), off)) == EMPTY


# Limits


@pytest.mark.parametrize(
    "query",
    [
        chain(0, prefix_hash=b"P", token_ids=[0] * (TOKEN_IDS_MAX + 1)),
        exact(prompt_text="x" * (PROMPT_TEXT_BYTES_MAX + 1)),
        exact(prompt_text="é" * (PROMPT_TEXT_BYTES_MAX // 2 + 1)),
        chain(block_hashes=[b"h"] * (BLOCKS_MAX + 1), block_token_counts=[1] * (BLOCKS_MAX + 1)),
        exact(b"h" * (IDENTIFIER_BYTES_MAX + 1)),
        exact(tenant="t" * (IDENTIFIER_BYTES_MAX + 1)),
        exact(adapter="a" * (IDENTIFIER_BYTES_MAX + 1)),
        exact(scheme="s" * (IDENTIFIER_BYTES_MAX + 1)),
        exact(model="é" * (IDENTIFIER_BYTES_MAX // 2 + 1)),
    ],
    ids=["ids", "text", "wide text", "blocks", "hash", "tenant", "adapter", "scheme", "wide model"],
)
def test_more_than_a_limit_is_no_hint(index: Model, query: Query) -> None:
    assert told(ask(index, query)) == EMPTY


def test_what_is_just_within_a_limit_is_looked_up(index: Model) -> None:
    assert told(ask(index, exact(prompt_text="x" * PROMPT_TEXT_BYTES_MAX, token_ids=[0] * TOKEN_IDS_MAX))) == MATCH
    hashes = [*CHAIN, *[b"h"] * (BLOCKS_MAX - 8)]
    assert told(ask(index, chain(block_hashes=hashes, block_token_counts=[16] * BLOCKS_MAX))) == MATCH
    assert told(ask(index, exact(tenant="é" * (IDENTIFIER_BYTES_MAX // 2)))) == ("UNKNOWN_TENANT", [])


# 5


@pytest.mark.parametrize(("least", "code"), [(0, "PREFIX_MATCH"), (128, "PREFIX_MATCH"), (129, AFFINE)])
def test_a_short_prompt_is_downgraded_to_affinity(index: Model, least: int, code: str) -> None:
    policy = CachePolicy(minimum_prefix_tokens=least)
    assert str(ask(index, chain(), policy).reason) == code
    assert str(ask(index, exact(), policy).reason) == code
    assert str(ask(index, chain(0, token_ids=[*TOKENS, 1]), policy).reason) == code


def test_a_short_prompt_without_affinity_is_no_hint_at_once(index: Model) -> None:
    policy = CachePolicy(minimum_prefix_tokens=129, affinity=False)
    assert told(ask(index, chain(model="q"), policy)) == EMPTY
    assert told(ask(index, chain(model="q"), CachePolicy(minimum_prefix_tokens=129))) == ("UNKNOWN_MODEL", [])


def test_a_short_prompt_is_never_hot(index: Model) -> None:
    report(index, "r2", 0, stats=Stats(hit_rate=1.0))
    assert told(ask(index, exact(b"new"))) == ("TENANT_HOT", ["r2"])
    assert str(ask(index, exact(b"new"), CachePolicy(minimum_prefix_tokens=129)).reason) == AFFINE
