"""LookupPDRoute over a real index: which pair, under which code, and why none."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.disagg import PDQuery, PDRoute, decide_pd_route, members
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.index.index import Index
from terraflow.hints.policy.policies import CachePolicy, Policies, Pool, Topology
from terraflow.hints.words import Entry, Report, Scope, Stats

HASH = b"\x00" * 7 + b"\x01"
NOW = 1_000.0
LABELS = {
    "p0": {"role": "prefill"},
    "p1": {"role": "prefill"},
    "p2": {"role": "prefill", "zone": "b"},
    "d0": {"role": "decode"},
    "d1": {"role": "decode"},
    "other": {"role": "batch"},
}
TOPOLOGY = Topology(
    ref="acme/pd",
    prefill_pools=(Pool(name="p", match_labels={"role": "prefill"}),),
    decode_pools=(Pool(name="d", match_labels={"role": "decode"}),),
    hash_scheme="vllm",
    transport="NIXL",
)


class Fleet:
    """An index with reports, and lookups of one prefix in it."""

    def __init__(self, topology: Topology = TOPOLOGY, **policy: Any) -> None:
        self.index = Index()
        self.labels = LABELS
        self.policies = Policies(cache={"acme": CachePolicy(**policy)}, topologies={"acme/pd": topology})
        self.expired = iter(lambda: False, None)
        self.in_flight: dict[str, int] = {}

    def holds(self, *replicas: str, tokens: int = 128, hash_: bytes = HASH, at: float = NOW, **where: str) -> Fleet:
        for replica in replicas:
            self._report(replica, at, entries=(Entry(where.pop("adapter", ""), [hash_], [tokens], 1),), **where)
        return self

    def pressed(self, pressure: float, *replicas: str, at: float = NOW) -> Fleet:
        for replica in replicas:
            self._report(replica, at, stats=Stats(pressure=pressure))
        return self

    def _report(self, replica: str, at: float, **fields: Any) -> None:
        where = {"model": "m", "tenant": "acme", "scheme": "vllm", **fields}
        self.index.ingest(Report(replica=replica, **where), at)

    def route(self, now: float = NOW, **query: Any) -> PDRoute:
        asked = {"topology": "acme/pd", "tenant": "acme", "model": "m", "prefix_hash": HASH, "prefix_token_count": 128}
        assigned = Assigned()
        for replica, requests in self.in_flight.items():
            for _ in range(requests):
                assigned.sent(Scope("acme", "m", "vllm"), "", replica, [], 0, now)
        grounds = Grounds(index=self.index, policies=self.policies, assigned=assigned)
        return decide_pd_route(PDQuery(**{**asked, **query}), grounds, self.labels, now, lambda: next(self.expired))


def pair(route: PDRoute) -> tuple[Lookup, str, str]:
    return route.reason, route.prefill, route.decode


def test_prefill_goes_to_the_best_score_of_the_pool() -> None:
    route = Fleet().holds("p0", "p1", "other").pressed(0.5, "p0").pressed(0.2, "d0").pressed(0.1, "d1").route()
    assert pair(route) == (Lookup.PREFIX_MATCH, "p1", "d1")
    assert (route.transport, route.held, route.cause) == ("NIXL", ("p1",), "")


def test_decode_goes_to_the_holder_and_the_remote_prefill_is_skipped() -> None:
    route = Fleet().holds("p0", "d1").pressed(0.9, "d1").route()
    assert pair(route) == (Lookup.PREFIX_MATCH, "d1", "d1")
    assert route.held == ("d1",)


def test_of_several_holders_the_least_loaded_decodes_even_when_all_hold() -> None:
    route = Fleet().holds("d0", "d1").pressed(0.5, "d0").pressed(0.4, "d1").route()
    assert pair(route) == (Lookup.PREFIX_MATCH, "d1", "d1")


def test_a_decode_replica_that_holds_too_little_gets_a_remote_prefill() -> None:
    fleet = Fleet().holds("p0", "d1", tokens=100)
    assert pair(fleet.route(prefix_token_count=128)) == (Lookup.PREFIX_MATCH, "p0", "d1")
    assert fleet.route(prefix_token_count=128).held == ("p0", "d1")
    assert pair(fleet.route(prefix_token_count=100)) == (Lookup.PREFIX_MATCH, "d1", "d1")
    assert pair(fleet.route(prefix_token_count=0)) == (Lookup.PREFIX_MATCH, "d1", "d1")


def test_a_holder_whose_source_is_lost_is_not_relied_on() -> None:
    fleet = Fleet().holds("d1").holds("other", hash_=b"x").pressed(0.9, "p0", "p1")
    fleet.index.degrade("acme", "m", "d1", NOW)
    assert pair(fleet.route()) == (Lookup.PREFIX_MATCH, "p2", "d1")
    fleet.holds("d0").pressed(0.9, "d0")
    assert pair(fleet.route()) == (Lookup.PREFIX_MATCH, "d0", "d0")


def test_the_floors_judge_a_match() -> None:
    few = Fleet().holds("p0", "d0", tokens=63).route()
    assert few.reason is Lookup.AFFINITY_HINT
    assert few.held == ()
    assert (
        Fleet(minimum_matched_tokens=0).holds("d0", tokens=63).route(prefix_token_count=63).reason
        is Lookup.PREFIX_MATCH
    )
    busy = Fleet().holds("p0").pressed(1.0, "p0")
    assert pair(busy.route())[0] is Lookup.AFFINITY_HINT
    assert busy.route().prefill != "p0"
    assert Fleet(routing_floor_score=0.0).holds("p0").pressed(1.0, "p0").route().prefill == "p0"


def test_that_everybody_holds_a_prefix_is_a_match_for_the_least_loaded() -> None:
    fleet = Fleet().holds("p0", "p1", "p2")
    fleet.in_flight = {"p0": 2, "p1": 1, "p2": 2}
    assert pair(fleet.route())[:2] == (Lookup.PREFIX_MATCH, "p1")
    fleet.pressed(0.2, "p1")
    fleet.pressed(0.1, "p0", "p2")
    fleet.in_flight = {"p0": 2}
    assert pair(fleet.route())[:2] == (Lookup.PREFIX_MATCH, "p2")


def test_without_a_match_the_least_loaded_of_each_pool() -> None:
    fleet = Fleet().holds("other", hash_=b"x").pressed(0.9, "p0", "d0").pressed(0.5, "p1", "d1").pressed(0.6, "p2")
    assert pair(fleet.route()) == (Lookup.AFFINITY_HINT, "p1", "d1")
    fleet.pressed(0.5, "p0", "p2", "d0")
    fleet.in_flight = {"p0": 2, "p1": 1, "p2": 3, "d1": 1}
    assert pair(fleet.route()) == (Lookup.AFFINITY_HINT, "p1", "d0")


def test_a_pressure_past_the_ttl_is_forgotten() -> None:
    fleet = Fleet().pressed(0.9, "d0").pressed(0.1, "d1", at=NOW + 1_700).holds("other", hash_=b"x", at=NOW + 1_900)
    assert fleet.route(now=NOW + 1_500).reason is Lookup.AFFINITY_HINT
    assert fleet.route(now=NOW + 1_900).decode == "d0"


def test_a_match_past_the_ttl_is_none() -> None:
    fleet = Fleet().holds("p0", "d0").holds("other", hash_=b"x", at=NOW + 1_700)
    assert fleet.route(now=NOW + 1_799).reason is Lookup.PREFIX_MATCH
    assert fleet.route(now=NOW + 1_801).reason is Lookup.AFFINITY_HINT


def test_ties_stay_together_by_prefix_and_spread_over_prefixes() -> None:
    fleet = Fleet().holds("other", hash_=b"x")
    chosen = set()
    for n in range(64):
        prefix = n.to_bytes(8, "big")
        at = int.from_bytes(sha256(prefix).digest()[:8], "big")
        expected = (Lookup.AFFINITY_HINT, ["p0", "p1", "p2"][at % 3], ["d0", "d1"][at % 2])
        assert pair(fleet.route(prefix_hash=prefix)) == pair(fleet.route(prefix_hash=prefix)) == expected
        chosen.add(expected)
    assert len(chosen) == 6


def test_the_adapter_of_the_topology_is_looked_into() -> None:
    tuned = msgspec.structs.replace(TOPOLOGY, adapter="lora")
    assert Fleet(tuned).holds("d0").route().reason is Lookup.AFFINITY_HINT
    assert Fleet(tuned).holds("d0", adapter="lora").route().reason is Lookup.PREFIX_MATCH


# fmt: off
NO_HINTS: list[tuple[dict[str, Any], dict[str, Any], Lookup, str]] = [
    ({}, {"tenant": "inferencecache.io/probe"}, Lookup.NO_HINT, "reserved_tenant"),
    ({}, {"foreign": True}, Lookup.NO_HINT, "foreign_tenant"),
    ({}, {"topology": "acme/other"}, Lookup.NO_HINT, "unknown_topology"),
    ({}, {"topology": ""}, Lookup.NO_HINT, "unknown_topology"),
    ({}, {"tenant": ""}, Lookup.NO_HINT, "no_keys"),
    ({}, {"model": ""}, Lookup.NO_HINT, "no_keys"),
    ({}, {"prefix_hash": b""}, Lookup.NO_HINT, "no_prefix"),
    ({}, {"prefix_hash": b"x" * 65_537}, Lookup.NO_HINT, "too_large"),
    ({}, {"tenant": "é" * 32_769}, Lookup.NO_HINT, "too_large"),
    ({}, {"model": "é" * 32_769}, Lookup.NO_HINT, "too_large"),
    ({}, {"topology": "é" * 32_769}, Lookup.NO_HINT, "too_large"),
    ({}, {"tenant": "acme2"}, Lookup.UNKNOWN_TENANT, "unknown_keys"),
    ({}, {"model": "m2"}, Lookup.UNKNOWN_MODEL, "unknown_keys"),
    ({"affinity": False}, {"prefix_hash": b"new"}, Lookup.NO_HINT, "affinity_off"),
    ({"affinity": False, "minimum_prefix_tokens": 129}, {}, Lookup.NO_HINT, "affinity_off"),
]
# fmt: on


@pytest.mark.parametrize(("policy", "query", "reason", "cause"), NO_HINTS)
def test_no_hint(policy: dict[str, Any], query: dict[str, Any], reason: Lookup, cause: str) -> None:
    route = Fleet(**policy).holds("p0").route(**query)
    assert route == PDRoute(reason=reason, cause=cause)


def test_an_unknown_scheme_and_an_empty_index() -> None:
    fleet = Fleet()
    assert fleet.route() == PDRoute(reason=Lookup.NO_HINT, cause="empty_index")
    fleet.holds("p0", scheme="sglang")
    assert fleet.route() == PDRoute(reason=Lookup.UNKNOWN_HASH_SCHEME, cause="unknown_keys")


def test_a_topology_without_a_scheme_or_without_replicas() -> None:
    def cause(**changes: Any) -> str:
        return Fleet(msgspec.structs.replace(TOPOLOGY, **changes)).holds("p0").route().cause

    nobody = (Pool(name="x", match_labels={"role": "none"}),)
    assert cause(hash_scheme="") == "no_scheme"
    assert cause(prefill_pools=()) == "no_prefill_replica"
    assert cause(prefill_pools=nobody) == "no_prefill_replica"
    assert cause(decode_pools=nobody) == "no_decode_replica"


def test_a_short_prefix_shows_unknown_codes_and_is_no_match() -> None:
    fleet = Fleet(minimum_prefix_tokens=256).holds("p0", "d0")
    assert fleet.route().reason is Lookup.AFFINITY_HINT
    assert fleet.route(model="m2").reason is Lookup.UNKNOWN_MODEL


def test_require_chain_does_not_concern_it() -> None:
    assert Fleet(require_chain=True).holds("d0").route().reason is Lookup.PREFIX_MATCH


def test_a_deadline_that_passes_at_any_point() -> None:
    fleet = Fleet().holds("d0")
    for answers in ([True], [False, True]):
        fleet.expired = iter(answers)
        assert fleet.route() == PDRoute(reason=Lookup.TIMEOUT, cause="deadline")


def test_members() -> None:
    assert members(TOPOLOGY.prefill_pools, LABELS) == ["p0", "p1", "p2"]
    both = (
        Pool(name="a", match_labels={"role": "prefill", "zone": "b"}),
        Pool(name="b", match_labels={"role": "batch"}),
    )
    assert members(both, LABELS) == ["other", "p2"]
    assert members((Pool(name="all", match_labels={}),), {**LABELS, "bare": {}}) == ["bare", *sorted(LABELS)]
    assert members((), LABELS) == []


held_by = st.dictionaries(st.sampled_from(sorted(LABELS)), st.integers(0, 300))


@settings(deadline=None)
@given(
    held_by, st.dictionaries(st.sampled_from(sorted(LABELS)), st.sampled_from([0.0, 0.25, 1.0])), st.integers(0, 300)
)
def test_a_route_is_of_the_pools_and_the_order_of_reports_does_not_matter(
    held: dict[str, int], pressures: dict[str, float], count: int
) -> None:
    def route(backwards: bool) -> PDRoute:
        fleet = Fleet().holds("other", hash_=b"x")
        for replica, tokens in sorted(held.items(), reverse=backwards):
            fleet.holds(replica, tokens=tokens)
        for replica, pressure in sorted(pressures.items(), reverse=backwards):
            fleet.pressed(pressure, replica)
        return fleet.route(prefix_token_count=count)

    found = route(False)
    assert found == route(True)
    assert found.decode in ("d0", "d1")
    assert found.prefill in ("p0", "p1", "p2", found.decode)
    enough = {replica for replica, tokens in held.items() if tokens >= 64}
    assert set(found.held) <= enough
    assert (found.reason is Lookup.PREFIX_MATCH) == bool(found.held)
    if enough & {"d0", "d1"}:
        assert found.decode in enough
    assert (found.prefill == found.decode) == (found.decode in enough and held[found.decode] >= count)
