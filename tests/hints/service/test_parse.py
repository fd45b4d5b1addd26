"""What strangers send, to words."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from terraflow.hints.service.parse import (
    COUNT_MAX,
    PIECE_HASHES,
    cumulative,
    parse_query,
    parse_reports,
)
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import BLOCKS_MAX, IDENTIFIER_BYTES_MAX, Entry, Report, Stats, Tier, longer

NOW_US = 1_700_000_000_000_000


def update(*prefixes: pb.PrefixEntry, **fields: object) -> pb.CacheStateUpdate:
    given = {"replica_id": "r", "model_id": "m", "tenant_id": "t", "hash_scheme": "s"} | fields
    return pb.CacheStateUpdate(prefixes=prefixes, **given)


def parsed(sent: pb.CacheStateUpdate) -> tuple[list[Report], Counter[str]]:
    dropped: Counter[str] = Counter()
    return list(parse_reports(sent, NOW_US, dropped)), dropped


def test_a_chain_becomes_one_entry_with_cumulative_counts_and_its_prefix_hash_another() -> None:
    prefix = pb.PrefixEntry(
        block_hashes=[b"a", b"b", b"c"],
        block_token_counts=[16, 16, 8],
        prefix_hash=b"p",
        token_count=40,
        adapter_id="l",
    )
    (report,), dropped = parsed(update(prefix, adapter_id="default"))
    assert report.entries == (
        Entry("l", [b"a", b"b", b"c"], [16, 32, 40], Tier.MEMORY),
        Entry("l", [b"p"], [40], Tier.MEMORY),
    )
    assert report.stats is None
    assert not dropped


def test_the_updates_adapter_is_that_of_entries_that_name_none() -> None:
    (report,), _ = parsed(update(pb.PrefixEntry(prefix_hash=b"p", token_count=1), adapter_id="default"))
    assert report.entries[0].adapter == "default"


@pytest.mark.parametrize(
    ("prefix", "cause"),
    [
        (pb.PrefixEntry(block_hashes=[b"a"], block_token_counts=[1, 2], prefix_hash=b"p"), "mismatched_arrays"),
        (pb.PrefixEntry(block_token_counts=[1], prefix_hash=b"p"), "mismatched_arrays"),
        (pb.PrefixEntry(block_hashes=[b"a", b""], block_token_counts=[1, 2], prefix_hash=b"p"), "empty_hash"),
        (pb.PrefixEntry(token_count=5), "empty_entry"),
        (pb.PrefixEntry(prefix_hash=b"x" * (IDENTIFIER_BYTES_MAX + 1)), "oversize"),
        (pb.PrefixEntry(block_hashes=[b"x" * (IDENTIFIER_BYTES_MAX + 1)], block_token_counts=[1]), "oversize"),
        (pb.PrefixEntry(prefix_hash=b"p", adapter_id="x" * (IDENTIFIER_BYTES_MAX + 1)), "oversize"),
        (
            pb.PrefixEntry(block_hashes=[b"x"] * (BLOCKS_MAX + 1), block_token_counts=[1] * (BLOCKS_MAX + 1)),
            "oversize",
        ),
    ],
)
def test_a_bad_entry_is_dropped_whole_and_counted_and_the_next_one_is_not(prefix: pb.PrefixEntry, cause: str) -> None:
    (report,), dropped = parsed(update(prefix, pb.PrefixEntry(prefix_hash=b"good", token_count=1)))
    assert [entry.hashes for entry in report.entries] == [[b"good"]]
    assert dropped == {cause: 1}


@pytest.mark.parametrize("missing", ["replica_id", "model_id", "tenant_id"])
def test_a_report_that_says_not_what_it_is_about_is_dropped(missing: str) -> None:
    reports, dropped = parsed(update(pb.PrefixEntry(prefix_hash=b"p"), **{missing: ""}))
    assert reports == []
    assert dropped == {"incomplete": 1}


@pytest.mark.parametrize("name", ["replica_id", "model_id", "tenant_id", "hash_scheme", "adapter_id"])
def test_identifiers_have_a_bound_in_bytes(name: str) -> None:
    at, above = "ä" * (IDENTIFIER_BYTES_MAX // 2), "ä" * (IDENTIFIER_BYTES_MAX // 2) + "a"
    assert parsed(update(pb.PrefixEntry(prefix_hash=b"p"), **{name: at}))[0]
    assert parsed(update(pb.PrefixEntry(prefix_hash=b"p"), **{name: above})) == ([], {"oversize": 1})


def test_an_empty_scheme_drops_prefixes_and_keeps_statistics() -> None:
    sent = update(pb.PrefixEntry(prefix_hash=b"p"), hash_scheme="", stats=pb.ReplicaStats(pressure=0.5))
    (report,), dropped = parsed(sent)
    assert report.entries == ()
    assert report.stats == Stats(pressure=0.5)
    assert dropped == {"no_scheme": 1}


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_in_statistics_is_zero(odd: float) -> None:
    (report,), _ = parsed(update(stats=pb.ReplicaStats(replica_id="other", hit_rate=odd, pressure=odd)))
    assert report.stats == Stats()
    assert report.replica == "r"


@pytest.mark.parametrize(
    ("wire", "kept"), [(0, Tier.MEMORY), (1, Tier.MEMORY), (3, Tier.REMOTE), (4, Tier.UNKNOWN), (-1, Tier.UNKNOWN)]
)
def test_tiers(wire: int, kept: Tier) -> None:
    (report,), _ = parsed(update(pb.PrefixEntry(prefix_hash=b"p", tier=wire)))
    assert report.entries[0].tier is kept or report.entries[0].tier == kept


def test_a_stamp_is_told_as_its_distance_from_the_servers_clock_and_none_is_now() -> None:
    assert parsed(update(pb.PrefixEntry(prefix_hash=b"p"), timestamp_us=NOW_US - 2_500_000))[0][0].skew_s == -2.5
    assert parsed(update(pb.PrefixEntry(prefix_hash=b"p"), timestamp_us=0))[0][0].skew_s == 0.0


@pytest.mark.parametrize("sizes", [[1, 5, 5000, 3], [PIECE_HASHES], [PIECE_HASHES, 1], [PIECE_HASHES * 3], [700] * 9])
def test_a_large_report_comes_in_pieces_that_hold_what_it_held(sizes: list[int]) -> None:
    chains = [[b"%d/%d" % (i, j) for j in range(size)] for i, size in enumerate(sizes)]
    sent = update(
        *(pb.PrefixEntry(block_hashes=chain, block_token_counts=[2] * len(chain)) for chain in chains),
        stats=pb.ReplicaStats(pressure=0.25),
    )
    reports, _ = parsed(sent)
    assert all(sum(len(entry.hashes) for entry in report.entries) <= PIECE_HASHES for report in reports)
    told = [pair for r in reports for e in r.entries for pair in zip(e.hashes, e.counts, strict=True)]
    assert told == [(one, 2 * (j + 1)) for chain in chains for j, one in enumerate(chain)]
    assert [report.stats is not None for report in reports] == [True] + [False] * (len(reports) - 1)


def test_sums_stay_within_what_the_wire_can_say() -> None:
    assert cumulative([COUNT_MAX, COUNT_MAX, -1]) == [COUNT_MAX, COUNT_MAX, COUNT_MAX]
    assert cumulative([-COUNT_MAX, -COUNT_MAX]) == [-COUNT_MAX, -COUNT_MAX]


def test_a_query_has_what_the_request_says() -> None:
    request = pb.LookupRouteRequest(
        tenant_id="t",
        model_id="m",
        hash_scheme="s",
        adapter_id="l",
        prefix_hash=b"p",
        prefix_token_count=5,
        block_hashes=[b"a"],
        block_token_counts=[16],
        token_ids=[1, 2],
        prompt_text="text",
        slo=pb.SLO(ttft_ms=100, tbt_ms=20),
    )
    query = parse_query(request, foreign=True)
    assert (query.tenant, query.model, query.scheme, query.adapter) == ("t", "m", "s", "l")
    assert (query.prefix_hash, query.prefix_token_count) == (b"p", 5)
    assert (query.block_hashes, query.block_token_counts, list(query.token_ids)) == ([b"a"], [16], [1, 2])
    assert (query.prompt_text, query.ttft_ms, query.foreign) == ("text", 100, True)


def test_length_in_bytes() -> None:
    assert [longer(text, 8) for text in ("12345678", "123456789", "ääää", "ääääa", "")] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_message_of_bad_entries_gives_others_their_turn() -> None:
    update = pb.CacheStateUpdate(replica_id="r", tenant_id="t", model_id="m", hash_scheme="s")
    for _ in range(3 * PIECE_HASHES):
        update.prefixes.add()
    dropped: Counter[str] = Counter()
    reports = parse_reports(update, 0, dropped)
    assert next(reports).entries == ()
    assert dropped["empty_entry"] == PIECE_HASHES
    assert [report.entries for report in reports] == [(), ()]
