"""Hostile event streams, in brief: `trust/hint_streams.py` runs all of them. Planted faults must be noticed."""

import pytest

from terraflow.hints.feed.mapping import Mapping
from terraflow.hints.feed.source import Source
from tests.hints.feed.hostile import SCOPE, WRONG_MAX, Fleet, judge, make_source
from tests.hints.feed.planted import PLANTED, OrphansAreRoots, lossy, unanswered


def test_two_hundred_and_forty_streams():
    judged = judge(make_source, 60)
    assert judged.streams == 240
    assert judged.hints > 20_000
    assert judged.gaps > 100
    assert judged.restarts > 100
    assert judged.degraded > 10
    assert judged.wrong <= judged.hints * WRONG_MAX
    assert judged.after_the_fact == 0


@pytest.mark.parametrize("fault", ["gaps_ignored", "sequences_ignored"])
def test_planted_faults_name_wrong_replicas(fault):
    ours, planted = judge(make_source, 10, wire=lossy), judge(PLANTED[fault], 10, wire=lossy)
    assert planted.wrong > planted.hints * 0.01
    assert ours.wrong * 3 < planted.wrong


@pytest.mark.parametrize("fault", ["restart_clears_nothing", "clears_do_nothing"])
def test_planted_faults_name_what_was_cleared(fault):
    assert judge(PLANTED[fault], 12).after_the_fact > 0


def test_a_planted_root_claims_what_nobody_has():
    """Chains that begin in their middle meet no lookup by chance; they are seen in what the index holds."""

    def invented(mapping: type[Mapping]) -> int:
        fleet = Fleet(3, lambda sink, replica: Source(sink, SCOPE, replica, mapping=mapping()), wire=unanswered)
        fleet.run(400)
        return len(fleet.sink.told.difference(*(line.engine.stored_in for line in fleet.lines.values())))

    assert invented(Mapping) == 0
    assert invented(OrphansAreRoots) > 0
