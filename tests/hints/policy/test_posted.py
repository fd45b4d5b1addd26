"""POST /policy's body: versions 3 to 7, defaults for what is absent, and nothing of a body that is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.hints.policy.body import Part
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies, PromptTemplate, Topology
from terraflow.hints.policy.posted import BODY_BYTES_MAX, parse_posted
from terraflow.hints.policy.problems import PoliciesRefused
from terraflow.hints.policy.sources import Origin, PolicySources


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"version": 7} | fields)


FULL = {
    "namespace": "acme",
    "evictionTTL": 90 * 10**9,
    "minimumPrefixTokens": 32,
    "minimumMatchedTokens": 128,
    "minimumMatchedShare": 0.05,
    "routingFloorScore": 5,
    "lookupTimeoutMs": 20,
    "affinityRouting": False,
    "eviction": "lfu",
    "strategy": {"enableChainMatching": True, "requireChain": True, "enableTenantHot": False},
}


def test_every_field() -> None:
    tenants = [{"tenantID": "a", "maxIndexEntries": 9, "isolationMode": "Fairness"}, {"tenantID": "b"}]
    found = parse_posted(body(policies=[FULL], tenants=tenants))
    assert found.cache == {
        "acme": CachePolicy(
            eviction=Eviction.LFU,
            ttl_s=90.0,
            minimum_prefix_tokens=32,
            minimum_matched_tokens=128,
            minimum_matched_share=0.05,
            routing_floor_score=5.0,
            lookup_timeout_ms=20,
            require_chain=True,
            tenant_hot=False,
            affinity=False,
        )
    }
    assert found.quotas == {"a": 9}


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_an_absent_field_is_the_default_in_every_version(version: int) -> None:
    nulls = {"namespace": "b", "routingFloorScore": None, "strategy": None, "minimumMatchedTokens": None}
    found = parse_posted(
        body(version=version, policies=[{"namespace": "a"}, nulls, {"namespace": "c", "strategy": {}}])
    )
    assert found.cache == {"a": CachePolicy(), "b": CachePolicy(), "c": CachePolicy()}
    assert found.quotas == {}


@pytest.mark.parametrize("fields", [{}, {"policies": None, "tenants": None}, {"policies": [], "tenants": []}])
def test_a_body_may_take_everything_back(fields: dict[str, Any]) -> None:
    assert parse_posted(body(**fields)) == ({}, {})


def test_negative_numbers_are_zero() -> None:
    negative = {
        "namespace": "a",
        "evictionTTL": -1,
        "minimumPrefixTokens": -1,
        "minimumMatchedTokens": -1,
        "routingFloorScore": -0.5,
        "lookupTimeoutMs": -1,
    }
    found = parse_posted(body(policies=[negative], tenants=[{"tenantID": "a", "maxIndexEntries": -5}]))
    assert found.cache["a"] == CachePolicy(minimum_matched_tokens=0, routing_floor_score=0.0)
    assert found.quotas == {"a": 0}


def test_the_probe_tenant_cannot_be_governed() -> None:
    probe = "inferencecache.io/probe"
    found = parse_posted(body(policies=[{"namespace": probe}], tenants=[{"tenantID": probe, "maxIndexEntries": 0}]))
    assert found == ({}, {})


# fmt: off
REFUSED = [
    (b"", "body", "not JSON"),
    (b"[]", "body", "no mapping"),
    (b"{}", "version", "required"),
    (b'{"version": 7} x', "body", "not JSON"),
    (b"[" * 100_000, "body", "not JSON"),
    (b'{"version": 7, "a": "\xff"}', "body", "not JSON"),
    (b" " * BODY_BYTES_MAX + b" ", "body", "larger"),
    (body(version=2), "version", "from 3 to 7"),
    (body(version=8), "version", "from 3 to 7"),
    (body(version="7"), "version", "expected `int`"),
    (body(rules=[]), "rules", "no field"),
    (body(policies=[{}]), "policies[0].namespace", "required"),
    (body(policies=[{"namespace": ""}]), "policies[0].namespace", "length"),
    (body(policies=[{"namespace": "a", "evictionTTL": "30m"}]), "policies[0].evictionTTL", "expected `int`"),
    (body(policies=[{"namespace": "a", "eviction": "LRU"}]), "policies[0].eviction", "LRU"),
    (body(policies=[{"namespace": "a", "affinityRouting": "Enabled"}]), "policies[0].affinityRouting", "`bool`"),
    (body(policies=[{"namespace": "a", "minimumMatchedShare": 2}]), "policies[0].minimumMatchedShare", "<= 1"),
    (body(policies=[{"namespace": "a", "strategy": {"x": True}}]), "policies[0].strategy.x", "no field"),
    (body(policies=[{"namespace": "a", "strategy": {"requireChain": True, "enableChainMatching": False}}]),
     "policies[0].strategy.requireChain", "needs enableChainMatching"),
    (body(policies=[{"namespace": "a"}, {"namespace": "a"}]), "policies[1].namespace", "second time"),
    (body(tenants=[{"tenantID": "a"}, {"tenantID": "a"}]), "tenants[1].tenantID", "second time"),
    (body(tenants=[{"tenantID": "a", "maxMemoryBytes": 1}]), "tenants[0].maxMemoryBytes", "no field"),
    (body(tenants=[{"tenantID": "a", "maxIndexEntries": 1.5}]), "tenants[0].maxIndexEntries", "expected `int"),
]
# fmt: on


@pytest.mark.parametrize(("raw", "field", "said"), REFUSED)
def test_a_refused_body(raw: bytes, field: str, said: str) -> None:
    with pytest.raises(PoliciesRefused) as refused:
        parse_posted(raw)
    (problem,) = refused.value.problems
    assert (problem.file, problem.line, problem.field) == ("", 0, field)
    assert said in problem.rule


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parse_posted(raw)
    except PoliciesRefused as refused:
        assert refused.problems


keys = st.sampled_from([*FULL, "version", "policies", "tenants", "tenantID", "maxIndexEntries", "requireChain", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=3), st.lists(st.dictionaries(keys, values, max_size=6), max_size=3))
def test_any_body_is_read_or_refused(more: dict[str, Any], policies: list[dict[str, Any]]) -> None:
    try:
        found = parse_posted(
            body(policies=policies, **{key: more[key] for key in more if key not in ("version", "policies")})
        )
    except PoliciesRefused as refused:
        assert all(problem.field and problem.rule for problem in refused.problems)
        return
    assert all(quota >= 0 for quota in found.quotas.values())


async def test_a_post_replaces_policies_and_quotas_and_leaves_the_rest() -> None:
    template = PromptTemplate(ref="a/t", parts=(Part("x", ""),), slots=(), revision="r")
    topology = Topology(ref="a/p", prefill_pools=(), decode_pools=())
    folder = Policies(
        cache={"a": CachePolicy(affinity=False)},
        quotas={"a": 1},
        templates={"a/t": template},
        topologies={"a/p": topology},
        labels={"r": {"x": "y"}},
    )
    adopted: list[Policies] = []
    sources = PolicySources(adopted.append, folder)
    assert (sources.in_force, sources.origin) == (folder, Origin.FOLDER)
    await sources.post(body(policies=[{"namespace": "b"}]))
    assert adopted == [sources.in_force]
    assert (adopted[0].cache, adopted[0].quotas) == ({"b": CachePolicy()}, {})
    assert (adopted[0].templates, adopted[0].topologies, adopted[0].labels) == (
        folder.templates,
        folder.topologies,
        folder.labels,
    )
    with pytest.raises(PoliciesRefused):
        await sources.post(body(version=1))
    assert len(adopted) == 1
    sources.from_folder(Policies(cache={"c": CachePolicy()}))
    assert (adopted[1].cache, adopted[1].templates) == ({"b": CachePolicy()}, {})
    assert sources.origin is Origin.POSTED


async def test_posts_take_effect_in_their_order() -> None:
    adopted: list[Policies] = []
    sources = PolicySources(adopted.append)
    large = body(policies=[{**FULL, "namespace": f"t{at}"} for at in range(500)])
    await asyncio.gather(sources.post(large), sources.post(body()))
    assert [len(policies.cache) for policies in adopted] == [500, 0]
