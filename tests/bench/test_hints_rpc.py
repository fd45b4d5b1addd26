"""The bench of LookupRoute over gRPC: what it asks is in its index, and how it judges."""

from __future__ import annotations

import pytest

from bench.hints_rpc import CHAINS, LOADS, PATH, Loaded, figures, filled, report, requests, service
from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.http2.heads import Head


def test_every_request_has_a_chain_of_its_length():
    for length in CHAINS:
        asked = requests(length)
        assert [len(one.block_hashes) for one in asked] == [length] * LOADS
        assert asked == requests(length)


def test_the_index_is_as_full_as_was_asked():
    assert 50_000 <= filled(50_000).index.entries() < 51_000


def test_the_handler_answers_what_is_asked_of_it():
    served = service(1_000_000)
    answers = [served.lookup_route(one, Call(PATH, Head(PATH, ()), Peer("::1"), None)) for one in requests(512)]
    assert {answer.reason_code for answer in answers} == {"PREFIX_MATCH"}
    assert all(answer.replica_scores[0].matched_tokens == 512 * 16 for answer in answers)


def test_figures_are_the_best_of_both_and_their_ratio():
    found = figures([Loaded(10_000, 50), Loaded(20_000, 60)], [Loaded(2_000, 300), Loaded(1_000, 250)])
    assert found == {"calls_per_s": 20_000, "cpu_us": 50, "aio_calls_per_s": 2_000, "aio_cpu_us": 250, "ratio": 10}


@pytest.mark.parametrize("length", CHAINS)
def test_the_report_has_a_row_for_each_chain(length):
    one = figures([Loaded(20_000, 50)], [Loaded(2_000, 300)])
    assert f"chain of {length} blocks" in report({str(length): one for length in CHAINS})
