"""Small replays with numbers that can be worked out by hand."""

from __future__ import annotations

import pytest

from terraflow.hints.replay.fleet import Fleet, Speeds
from terraflow.hints.replay.run import NAMES, Setting, replay
from terraflow.hints.replay.trace import TraceRequest

TWICE = [TraceRequest(0, 1024, 10, (1, 2)), TraceRequest(0, 1024, 10, (1, 2))]
SPEED = Speeds(1024.0)


def test_round_robin_sends_a_repeated_prompt_to_a_cold_replica() -> None:
    (figures,) = replay(TWICE, Setting(replicas=2, speeds=SPEED), ["round_robin"])
    assert (figures.hit_rate, figures.load_imbalance, figures.ttft_p50_ms) == (0.0, 1.0, 1000.0)


def test_one_replica_queues_the_second_and_finds_it_all() -> None:
    (figures,) = replay(TWICE, Setting(replicas=1, speeds=SPEED), ["round_robin"])
    assert (figures.hit_rate, figures.ttft_p50_ms, figures.ttft_p99_ms) == (0.5, 1000.0, 1000.0)


def test_a_later_request_has_no_queue() -> None:
    later = [TWICE[0], TraceRequest(5000, 1536, 10, (1, 2, 3))]
    (figures,) = replay(later, Setting(replicas=1, speeds=SPEED), ["hints"])
    assert (figures.hit_rate, figures.ttft_p50_ms) == (0.4, 500.0)


def test_the_last_part_block_counts_its_tokens_only() -> None:
    part = [TraceRequest(0, 700, 1, (1, 2)), TraceRequest(9000, 700, 1, (1, 2))]
    (figures,) = replay(part, Setting(replicas=1, speeds=SPEED), ["hashing"])
    assert figures.hit_rate == 0.5


def test_the_oracle_pools_all_caches() -> None:
    (figures,) = replay(TWICE, Setting(replicas=2, blocks=1, speeds=SPEED), ["oracle"])
    assert figures.hit_rate == 0.5


def test_all_policies_by_default_in_the_order_of_the_table() -> None:
    assert [each.policy for each in replay(TWICE, Setting(replicas=3))] == list(NAMES)


def test_a_prompt_without_a_whole_block_goes_somewhere() -> None:
    (figures,) = replay([TraceRequest(0, 10, 1, ())] * 4, Setting(replicas=2), ["hints"])
    assert figures.load_imbalance == 1.0


def test_progress_is_told_over_all_policies() -> None:
    told: list[tuple[int, int]] = []
    replay(TWICE, Setting(), ["round_robin", "hashing"], lambda done, total: told.append((done, total)))
    assert told[-1] == (4, 4)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(KeyError):
        replay(TWICE, Setting(), ["luck"])


def test_a_fleet_needs_replicas_and_speed() -> None:
    with pytest.raises(ValueError, match="one replica"):
        Fleet(0, 1, SPEED, pooled=False)
    with pytest.raises(ValueError, match="speeds"):
        Fleet(1, 1, Speeds(0.0), pooled=False)
