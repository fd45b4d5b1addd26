"""Mutated requests at the edge and at a stranger's reader; an edge with a lenient parser is caught."""

from __future__ import annotations

import pytest

from tests.harness.edge import Edge
from trust.raw_mutations import NEXT, WHOLE, compare, mutated, read_by_h11, verdict

COUNT = 1_500


def test_nothing_is_served_that_another_reads_otherwise() -> None:
    with Edge() as edge:
        verdicts, found = compare(edge, range(COUNT))
    assert found == []
    assert verdicts["alike"] > COUNT / 2 and verdicts["refused"] > COUNT / 50


def test_a_lenient_parser_is_caught() -> None:
    with Edge(lenient=True) as edge:
        _, found = compare(edge, range(COUNT))
    assert len(found) > 10


@pytest.mark.parametrize("raw", WHOLE)
def test_what_is_not_mutated_is_read_whole_by_the_stranger(raw: bytes) -> None:
    assert [method for method, _ in read_by_h11(raw + NEXT)] == [raw.split(b" ")[0].decode(), "GET"]


def test_the_verdicts() -> None:
    first, second = ("GET", b""), ("POST", b"x")
    assert verdict([first], [first]) == "alike"
    assert verdict([], [first]) == verdict([first], [first, second]) == "refused"
    assert verdict([first, second], [first]) == verdict([first], [second]) == verdict([first], []) == "differs"
    assert mutated(7) == mutated(7)
