"""The live hints: deadlines, faults, policies, labels and listeners."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.disagg import PDQuery
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.deciding.question import Query
from terraflow.hints.index.index import Index
from terraflow.hints.index.said import Change, Kind
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies, Pool, Topology
from terraflow.hints.words import Entry, Report, Scope, Stats
from tests.storage.makers import SetClock

SCOPE = Scope("t", "m", "s")


class Running(SetClock):
    """A clock on which each look takes so many milliseconds."""

    def __init__(self, step_ms: int = 0) -> None:
        super().__init__()
        self.step_ms = step_ms

    def monotonic(self) -> float:
        self.time += self.step_ms * 1000
        return super().monotonic()


def live_of(clock: SetClock, policies: Policies = Policies()) -> LiveHints:
    live = LiveHints(Grounds(index=Index(), policies=policies), clock)
    for replica, hashes in (("r", [b"a", b"b"]), ("q", [b"z"])):
        entry = Entry("", hashes, [64 * (i + 1) for i in range(len(hashes))], 1)
        live.ingest(Report(replica=replica, model="m", tenant="t", scheme="s", entries=(entry,)))
    return live


def query(hashes: Sequence[bytes] = (b"a", b"b")) -> Query:
    return Query(tenant="t", model="m", scheme="s", block_hashes=hashes, block_token_counts=[64] * len(hashes))


@pytest.mark.parametrize(
    ("policy_ms", "caller_ms", "reason"),
    [
        (0, None, Lookup.PREFIX_MATCH),
        (-1, None, Lookup.PREFIX_MATCH),
        (10_000, 10_000, Lookup.PREFIX_MATCH),
        (5, 10_000, Lookup.TIMEOUT),
        (10_000, 5, Lookup.TIMEOUT),
        (0, -5, Lookup.TIMEOUT),
    ],
)
def test_the_tighter_deadline_decides(policy_ms: int, caller_ms: int | None, reason: Lookup) -> None:
    clock = Running()
    live = live_of(clock, Policies(cache={"t": CachePolicy(lookup_timeout_ms=policy_ms)}))
    clock.step_ms = 2
    deadline = None if caller_ms is None else SetClock.monotonic(clock) + caller_ms / 1000
    assert live.lookup(query(), deadline).reason is reason


def test_what_breaks_is_counted_and_answered_without_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    live = live_of(SetClock())
    broken = query()
    broken.block_token_counts = ["x", "y"]  # type: ignore[list-item]
    answer = live.lookup(broken)
    assert (answer.reason, answer.scored) == (Lookup.NO_HINT, [])
    assert live.faults == 1
    assert "a lookup failed" in caplog.text


def test_policies_govern_and_let_go() -> None:
    live = live_of(SetClock())
    live.adopt(Policies(cache={"t": CachePolicy(ttl_s=7.0, eviction=Eviction.LFU)}, quotas={"t": 1}))
    assert live.index.ttl_s("t") == 7.0
    assert live.index.keys("t") == 1
    live.adopt(Policies())
    assert live.index.ttl_s("t") == live.index.ttl_default_s
    live.ingest(Report(replica="r", model="m", tenant="t", scheme="s", entries=(Entry("", [b"1", b"2"], [1, 2], 1),)))
    assert live.index.keys("t") == 3


def test_labels_are_those_of_the_file_and_those_registered() -> None:
    live = live_of(SetClock(), Policies(labels={"r": {"role": "prefill", "zone": "a"}}))
    live.register("t", "m", "r", {"zone": "b"})
    live.register("t", "m", "q", {"role": "decode"})
    live.register("u", "m", "other", {"role": "decode"})
    live.register("t", "n", "other", {"role": "decode"})
    assert live.labels("t", "m") == {"r": {"role": "prefill", "zone": "b"}, "q": {"role": "decode"}}
    live.register("t", "m", "q", {})
    assert live.labels("t", "m") == {"r": {"role": "prefill", "zone": "b"}}


def test_a_pd_route_credits_what_decided_under_lfu() -> None:
    pools = {
        "prefill_pools": (Pool(name="p", match_labels={"role": "p"}),),
        "decode_pools": (Pool(name="d", match_labels={"role": "d"}),),
    }
    live = live_of(
        SetClock(),
        Policies(
            cache={"t": CachePolicy(eviction=Eviction.LFU)},
            topologies={"t/x": Topology(ref="t/x", hash_scheme="s", **pools)},  # type: ignore[arg-type]
            labels={"r": {"role": "p"}, "q": {"role": "d"}},
        ),
    )
    asked = PDQuery(topology="t/x", tenant="t", model="m", prefix_hash=b"b", prefix_token_count=128)
    for _ in range(3):
        route = live.pd_route(asked)
        assert (route.reason, route.prefill, route.decode) == (Lookup.PREFIX_MATCH, "r", "q")
    assert live.index.hot("t", "m", live.clock.monotonic()) == 1


def test_listeners_hear_changes_until_they_end() -> None:
    live = live_of(SetClock())
    one: list[Change] = []
    two: list[Change] = []
    end_one, end_two = live.listen(one.append), live.listen(two.append)
    live.stats("t", "m", "r", Stats(pressure=0.5))
    end_one()
    live.evict_many(SCOPE, "r", "", [b"a"])
    end_two()
    end_two()
    live.clear("t", "m", "r")
    assert [change.kind for change in one] == [Kind.UPDATED]
    assert [change.kind for change in two] == [Kind.UPDATED, Kind.EVICTED]
    assert live.index.changed is None


def test_a_listener_that_raises_is_told_no_more_and_costs_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    live = live_of(SetClock())
    told: list[Change] = []

    def refuse(change: Change) -> None:
        raise LookupError

    live.listen(refuse)
    live.listen(told.append)
    live.stats("t", "m", "r", Stats(pressure=0.5))
    live.evict_many(SCOPE, "r", "", [b"a"])
    assert [change.kind for change in told] == [Kind.UPDATED, Kind.EVICTED]
    assert caplog.text.count("told no more") == 1


def test_a_sweep_goes_on_until_nothing_is_left_of_what_aged_or_was_cleared() -> None:
    clock = SetClock()
    live = LiveHints(Grounds(index=Index(ttl_s=10.0)), clock)
    hashes = [b"%d" % i for i in range(5_000)]
    for replica in ("r", "q"):
        entry = Entry("", hashes, [1] * len(hashes), 1)
        live.ingest(Report(replica=replica, model="m", tenant="t", scheme="s", entries=(entry,)))
    live.clear("t", "m", "r")
    clock.time += 60_000_000
    steps = 0
    while live.sweep():
        steps += 1
    assert 5 <= steps < 50
    assert (live.index.entries(), live.index.keys(), live.index.owing) == (0, 0, False)
