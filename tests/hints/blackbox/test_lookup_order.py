"""Every row of LookupRoute's order and every code, over the wire, with a real gRPC client."""

from __future__ import annotations

import hashlib
import time
import uuid
from pathlib import Path

import grpc
import pytest

from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import block_keys
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import PROBE_TENANT, PROMPT_TEXT_BYTES_MAX, TOKEN_IDS_MAX
from tests.hints.blackbox.served import Client, Served, chain, replicas, update
from tests.raised import Raised


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return uuid.uuid4().hex


def fill(client: Client, tenant: str, *replicas: str, scheme: str = "s") -> None:
    """Let replicas hold a block that nobody looks up, so that the scope is known."""
    client.report(*(update(replica, [b"elsewhere"], tenant_id=tenant, hash_scheme=scheme) for replica in replicas))


# 1


def test_the_probes_tenant_is_never_looked_up(client: Client, raised: Raised) -> None:
    client.report(update("r", [b"a"], tenant_id=PROBE_TENANT))
    answer = client.lookup(PROBE_TENANT, **chain([b"a"]))
    assert raised.lookup(answer) is Lookup.NO_HINT
    assert not answer.replica_scores
    assert not client.state(PROBE_TENANT).replicas


# 2


def test_the_policys_deadline_passes(client: Client, raised: Raised) -> None:
    fill(client, "hurried", "r")
    answer = client.lookup("hurried", token_ids=range(TOKEN_IDS_MAX))
    assert raised.lookup(answer) is Lookup.TIMEOUT
    assert not answer.replica_scores


def test_a_callers_deadline_that_has_passed_is_a_timeout_where_a_reply_still_reaches_it(client: Client) -> None:
    codes = set()
    for seconds in (1e-9, 1e-6, 1e-4):
        try:
            request = pb.LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="s", token_ids=range(500_000))
            codes.add(client.stub.LookupRoute(request, timeout=seconds).reason_code)
        except grpc.RpcError as failed:
            codes.add(failed.code())
    assert codes <= {Lookup.TIMEOUT, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_no_timeout_of_the_policy_is_none(client: Client, tenant: str) -> None:
    fill(client, tenant, "r")
    assert client.lookup(tenant, token_ids=range(200_000)).reason_code == Lookup.AFFINITY_HINT


# 3


def test_a_chain_that_the_policy_requires(client: Client, raised: Raised) -> None:
    tenant = "requires-chain"
    client.report(update("r", [b"a", b"b"], tenant_id=tenant))
    refused = (
        {},
        {"token_ids": range(64)},
        {"prompt_text": "text"},
        {"prefix_hash": b"a", "prefix_token_count": 64},
        {"block_hashes": [b"a", b"b"], "block_token_counts": [64]},
        {"block_hashes": [b"a", b""], "block_token_counts": [64, 64]},
    )
    for given in refused:
        assert raised.lookup(client.lookup(tenant, **given)) is Lookup.POLICY_REQUIRES_CHAIN
    assert raised.lookup(client.lookup(tenant, **chain([b"a", b"b"]))) is Lookup.PREFIX_MATCH


# 4


@pytest.mark.parametrize(
    "given",
    [
        {"block_hashes": [b"a", b"b"], "block_token_counts": [64], "prefix_hash": b"a"},
        {"block_token_counts": [64], "prefix_hash": b"a"},
        {"block_hashes": [b"a", b""], "block_token_counts": [64, 64]},
        {"token_ids": range(15)},
        {"prompt_text": "a" * (PROMPT_TEXT_BYTES_MAX + 1)},
        {"block_hashes": [b"a"] * 65_537, "block_token_counts": [64] * 65_537},
        {"block_hashes": [b"a"], "block_token_counts": [64], "adapter_id": "x" * 65_537},
        {},
    ],
    ids=[
        "short counts",
        "counts alone",
        "empty hash",
        "part block",
        "long text",
        "many blocks",
        "long name",
        "nothing",
    ],
)
def test_input_that_is_none(client: Client, tenant: str, given: dict[str, object]) -> None:
    client.report(update("r", [b"a"], tenant_id=tenant))
    answer = client.lookup(tenant, **given)
    assert answer.reason_code == Lookup.NO_HINT
    assert not answer.replica_scores


def test_token_ids_are_hashed_by_block(client: Client, tenant: str) -> None:
    token_ids = list(range(100, 260))
    keys = block_keys(token_ids, 16)
    client.report(update("r", keys[:6], tokens=16, tenant_id=tenant))
    answer = client.lookup(tenant, token_ids=[*token_ids, 1, 2, 3])
    assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["r"])
    assert answer.replica_scores[0].matched_tokens == 96
    assert not answer.token_ids


@pytest.mark.parametrize("length", [200, 9_000], ids=["short", "long"])
def test_prompt_text_is_tokenized_and_its_ids_are_echoed(client: Client, tenant: str, length: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    fill(client, tenant, "other")
    first = client.lookup(tenant, prompt_text=text)
    assert len(first.token_ids) > length
    client.report(update("r", block_keys(first.token_ids, 16), tokens=16, tenant_id=tenant))
    answer = client.lookup(tenant, prompt_text=text)
    assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["r"])
    assert answer.token_ids == first.token_ids
    assert answer.lookup_latency_us > 0


def test_prompt_text_without_a_tokenizer_is_no_input(client: Client, tenant: str) -> None:
    client.report(update("r", [b"a"], tenant_id=tenant, model_id="untokenized"))
    assert client.lookup(tenant, "untokenized", prompt_text="x" * 100).reason_code == Lookup.NO_HINT


def test_without_chain_matching_the_prefix_hash_decides(client: Client) -> None:
    tenant = "no-chain-matching"
    prefix = pb.PrefixEntry(prefix_hash=b"p", token_count=100)
    client.report(
        pb.CacheStateUpdate(replica_id="r", tenant_id=tenant, model_id="m", hash_scheme="s", prefixes=[prefix]),
        update("q", [b"a"], tenant_id=tenant),
    )
    answer = client.lookup(tenant, prefix_hash=b"p", **chain([b"a", b"b"]))
    assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["r"])
    assert answer.replica_scores[0].matched_tokens == 100
    assert client.lookup(tenant, **chain([b"a"])).reason_code == Lookup.NO_HINT


# 5


def test_a_short_prefix_is_no_match_and_goes_to_affinity(client: Client) -> None:
    tenant = "long-prefixes"
    unknown = client.lookup(tenant, **chain([b"a"]))
    assert unknown.reason_code == Lookup.UNKNOWN_TENANT
    client.report(update("r", [b"a", b"b", b"c", b"d"], tenant_id=tenant))
    short, long = client.lookup(tenant, **chain([b"a"])), client.lookup(tenant, **chain([b"a", b"b", b"c", b"d"]))
    assert (short.reason_code, replicas(short)) == (Lookup.AFFINITY_HINT, ["r"])
    assert long.reason_code == Lookup.PREFIX_MATCH


def test_a_short_prefix_without_affinity_is_not_looked_up(client: Client) -> None:
    tenant = "long-prefixes-only"
    assert client.lookup(tenant, **chain([b"a"])).reason_code == Lookup.NO_HINT
    client.report(update("r", [b"a"], tenant_id=tenant))
    assert client.lookup(tenant, **chain([b"a"])).reason_code == Lookup.NO_HINT


# 6


@pytest.mark.parametrize("names", [("", "m", "s"), ("t", "", "s"), ("t", "m", "")])
def test_an_empty_name_is_no_hint(client: Client, names: tuple[str, str, str]) -> None:
    client.report(update("r", [b"a"]))
    assert client.lookup(*names, **chain([b"a"])).reason_code == Lookup.NO_HINT


def test_a_chain_matches_its_longest_leading_run_with_the_requests_counts(
    client: Client, tenant: str, raised: Raised
) -> None:
    client.report(
        update("long", [b"a", b"b", b"c"], tokens=16, tenant_id=tenant),
        update("short", [b"a"], tokens=16, tenant_id=tenant),
        update("gap", [b"b", b"c"], tokens=16, tenant_id=tenant),
        update("none", [b"z"], tokens=16, tenant_id=tenant),
    )
    answer = client.lookup(tenant, **chain([b"a", b"b", b"c", b"d"], tokens=100))
    assert raised.lookup(answer) is Lookup.PREFIX_MATCH
    assert [(row.replica_id, row.matched_tokens) for row in answer.replica_scores] == [("long", 300), ("short", 100)]
    first, second = answer.replica_scores
    # Of four replicas one holds as much as the first, two as much as the second.
    assert first.score == pytest.approx(300 * 0.75, rel=1e-3)
    assert second.score == pytest.approx(100 * 0.5, rel=1e-3)
    assert 0.99 < first.estimated_cache_hit_prob <= 1


def test_the_tier_is_the_coldest_of_the_run(client: Client, tenant: str) -> None:
    for block, tier in ((b"a", pb.CACHE_TIER_T1), (b"b", pb.CACHE_TIER_T3), (b"c", 9)):
        prefix = pb.PrefixEntry(block_hashes=[block], block_token_counts=[64], tier=tier)
        client.report(
            pb.CacheStateUpdate(replica_id="r", tenant_id=tenant, model_id="m", hash_scheme="s", prefixes=[prefix])
        )
    tiers = [client.lookup(tenant, **chain(blocks)).replica_scores[0].tier for blocks in ([b"a"], [b"a", b"b"])]
    assert tiers == [pb.CACHE_TIER_T1, pb.CACHE_TIER_T3]
    unknown = client.lookup(tenant, **chain([b"a", b"b", b"c"])).replica_scores[0].tier
    assert unknown == pb.CACHE_TIER_UNSPECIFIED


def test_adapters_share_no_keys_and_are_echoed(client: Client, tenant: str) -> None:
    client.report(update("r", [b"a"], tenant_id=tenant, adapter_id="lora"))
    assert client.lookup(tenant, adapter_id="lora", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH
    other = client.lookup(tenant, adapter_id="other", **chain([b"a"]))
    assert (other.reason_code, other.adapter_id) == (Lookup.AFFINITY_HINT, "other")


def test_pressure_and_a_tight_time_move_scores(client: Client, tenant: str) -> None:
    client.report(
        update("busy", [b"a"], tenant_id=tenant, stats=pb.ReplicaStats(pressure=0.75)),
        update("idle", [b"a"], tenant_id=tenant),
        update("none", [b"z"], tenant_id=tenant),
    )
    calm = client.lookup(tenant, **chain([b"a"]))
    assert replicas(calm) == ["idle", "busy"]
    assert calm.replica_scores[1].score / calm.replica_scores[0].score == pytest.approx(0.25, rel=1e-3)
    tight = client.lookup(tenant, slo=pb.SLO(ttft_ms=100), **chain([b"a"]))
    assert tight.replica_scores[0].score / calm.replica_scores[0].score == pytest.approx(2.0, rel=1e-2)


# 7


def test_what_is_below_the_floors_is_no_match(client: Client, tenant: str) -> None:
    client.report(update("r", [b"a"], tokens=16, tenant_id=tenant), update("q", [b"z"], tenant_id=tenant))
    few = client.lookup(tenant, **chain([b"a"], tokens=63))
    assert few.reason_code == Lookup.AFFINITY_HINT
    assert client.lookup(tenant, **chain([b"a"], tokens=64)).reason_code == Lookup.PREFIX_MATCH
    client.report(update("q", [b"a"], tenant_id=tenant))
    # All replicas hold it: the match distinguishes none, and the best score is 0.
    assert client.lookup(tenant, **chain([b"a"], tokens=64)).reason_code == Lookup.AFFINITY_HINT


def test_floors_that_a_policy_switches_off(client: Client) -> None:
    client.report(*(update(replica, [b"a"], tenant_id="any-match") for replica in ("q", "r")))
    answer = client.lookup("any-match", **chain([b"a"], tokens=1))
    assert (answer.reason_code, replicas(answer)) == (Lookup.PREFIX_MATCH, ["q", "r"])


# 8


def hot(client: Client, tenant: str) -> None:
    client.report(
        update("warm", [b"z"], tenant_id=tenant, stats=pb.ReplicaStats(hit_rate=0.5)),
        update("cold", [b"z"], tenant_id=tenant, stats=pb.ReplicaStats(hit_rate=0.05)),
        update("silent", [b"z"], tenant_id=tenant),
    )


def test_the_miss_of_an_exact_hash_is_tenant_hot(client: Client, tenant: str, raised: Raised) -> None:
    hot(client, tenant)
    answer = client.lookup(tenant, prefix_hash=b"p", prefix_token_count=500)
    assert raised.lookup(answer) is Lookup.TENANT_HOT
    (row,) = answer.replica_scores
    assert (row.replica_id, row.matched_tokens) == ("warm", 0)
    assert row.score == pytest.approx(0.5, rel=1e-2)
    assert row.estimated_cache_hit_prob == pytest.approx(0.5)


def test_the_miss_of_a_chain_never_is(client: Client, tenant: str) -> None:
    hot(client, tenant)
    assert client.lookup(tenant, **chain([b"p"])).reason_code == Lookup.AFFINITY_HINT


def test_a_policy_may_switch_tenant_hot_off(client: Client) -> None:
    hot(client, "not-hot")
    assert client.lookup("not-hot", prefix_hash=b"p").reason_code == Lookup.AFFINITY_HINT


# 9


def test_the_first_name_without_a_key_is_told(client: Client, tenant: str, raised: Raised) -> None:
    fill(client, "somebody", "r")
    asked = chain([b"a"])
    assert raised.lookup(client.lookup(tenant, **asked)) is Lookup.UNKNOWN_TENANT
    fill(client, tenant, "r")
    assert raised.lookup(client.lookup(tenant, "other", **asked)) is Lookup.UNKNOWN_MODEL
    assert raised.lookup(client.lookup(tenant, scheme="other", **asked)) is Lookup.UNKNOWN_HASH_SCHEME
    assert raised.lookup(client.lookup(tenant, **asked)) is Lookup.AFFINITY_HINT


def test_an_empty_index_knows_nothing(tmp_path: Path, raised: Raised) -> None:
    with Served(tmp_path, insecure_producers=True) as served:
        assert raised.lookup(served.client().lookup(**chain([b"a"]))) is Lookup.NO_HINT


def test_keys_past_their_ttl_count_for_nothing_at_once(tmp_path: Path) -> None:
    with Served(tmp_path, insecure_producers=True, ttl_s=1, sweep_interval_s=600) as served:
        client = served.client()
        client.report(update("r", [b"a"], tenant_id="t"))
        time.sleep(0.6)
        client.report(update("q", [b"z"], tenant_id="t"), update("q", [b"z"], tenant_id="u"))
        time.sleep(0.6)
        gone = client.lookup(**chain([b"a"]))
        assert (gone.reason_code, replicas(gone)) == (Lookup.AFFINITY_HINT, ["q"])
        time.sleep(0.6)
        client.report(update("q", [b"z"], tenant_id="u"))
        assert client.lookup(**chain([b"a"])).reason_code == Lookup.UNKNOWN_TENANT


# 10


def test_affinity_is_the_contracts_formula(client: Client, tenant: str, raised: Raised) -> None:
    names = ["r1", "r10", "r2", "r3"]
    fill(client, tenant, *names)
    for blocks in ([b"a"], [b"a", b"bc"], [b"ab", b"c"], [b"x" * 32] * 3):
        answer = client.lookup(tenant, **chain(blocks))
        seed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
        at = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") % len(names)
        assert raised.lookup(answer) is Lookup.AFFINITY_HINT
        (row,) = answer.replica_scores
        assert (row.replica_id, row.score, row.matched_tokens, row.estimated_cache_hit_prob, row.tier) == (
            names[at],
            0,
            0,
            0,
            0,
        )
    exact = client.lookup(tenant, prefix_hash=b"p", prefix_token_count=64)
    at = int.from_bytes(hashlib.sha256(b"p").digest()[:8], "big") % len(names)
    assert replicas(exact) == [names[at]]


def test_without_affinity_nothing_is_chosen(client: Client, raised: Raised) -> None:
    fill(client, "no-affinity", "r")
    answer = client.lookup("no-affinity", **chain([b"a"]))
    assert raised.lookup(answer) is Lookup.NO_HINT
    assert not answer.replica_scores
