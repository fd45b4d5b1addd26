"""The figures that route hints promise, on a recorded hour of conversations; they are counted, not timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from terraflow.hints.replay.fleet import Speeds
from terraflow.hints.replay.run import Figures, Setting, replay
from terraflow.hints.replay.trace import TraceRequest
from tests.hints.replay.loads import conversations, shared_prompt

PAGE = Path(__file__).parents[3] / "docs" / "hints" / "replay.md"


@pytest.fixture(scope="module")
def trace() -> list[TraceRequest]:
    return conversations()


@pytest.fixture(scope="module")
def figures(trace: list[TraceRequest]) -> dict[str, Figures]:
    return {each.policy: each for each in replay(trace, Setting())}


def test_the_simulation_is_the_one_that_the_promise_speaks_of(figures: dict[str, Figures]) -> None:
    assert round(figures["oracle"].hit_rate, 3) == 0.339
    assert round(figures["round_robin"].hit_rate, 3) == 0.100
    assert round(figures["round_robin"].load_imbalance, 2) == 1.04


def test_hints_find_nearly_what_a_pooled_cache_would(figures: dict[str, Figures]) -> None:
    hints = figures["hints"]
    assert hints.hit_rate >= 0.335
    assert hints.load_imbalance <= 1.03
    for other in ("round_robin", "least_loaded", "hashing"):
        assert hints.ttft_p99_ms < figures[other].ttft_p99_ms
        assert hints.ttft_p50_ms < figures[other].ttft_p50_ms


@pytest.mark.parametrize(
    "setting",
    [
        Setting(seed=1),
        Setting(report_pressure=True),
        Setting(event_delay_ms=2000.0),
        Setting(speeds=Speeds(8000.0, 50.0)),
    ],
    ids=["another seed", "pressure reported", "late events", "requests that decode"],
)
def test_they_do_so_also_otherwise(setting: Setting, trace: list[TraceRequest]) -> None:
    (hints,) = replay(trace, setting, ["hints"])
    assert hints.hit_rate >= 0.335
    assert hints.load_imbalance <= 1.03


@pytest.mark.parametrize(
    ("setting", "begin", "step"),
    [(Setting(replicas=16, blocks=2000), 0, 1), (Setting(seed=7), 6000, 1), (Setting(replicas=5), 0, 2)],
    ids=["more and smaller replicas", "the second half", "every other request"],
)
def test_they_do_so_on_other_traffic(setting: Setting, begin: int, step: int, trace: list[TraceRequest]) -> None:
    """What decides is not made for one trace: what others would find is the measure."""
    turns, hints, oracle = replay(trace[begin::step], setting, ["round_robin", "hints", "oracle"])
    assert hints.hit_rate >= 0.985 * oracle.hit_rate
    assert hints.load_imbalance <= 1.03
    assert hints.ttft_p99_ms < turns.ttft_p99_ms


def test_the_page_shows_these_figures(figures: dict[str, Figures]) -> None:
    shown = [line.split() for line in PAGE.read_text("utf-8").splitlines()]
    for name, each in figures.items():
        found = (
            f"{each.hit_rate:.1%}",
            f"{each.load_imbalance:.3f}",
            f"{each.ttft_p50_ms:.0f}",
            f"{each.ttft_p99_ms:.0f}",
        )
        assert [name, *found] in shown


def test_the_same_trace_and_seed_give_the_same_numbers(figures: dict[str, Figures], trace: list[TraceRequest]) -> None:
    assert replay(trace, Setting(), ["hints", "least_loaded"]) == [figures["hints"], figures["least_loaded"]]


@pytest.mark.parametrize(
    ("shared", "own", "rate"),
    [(1, 24, 1.2), (1, 8, 3.4), (2, 8, 3.4), (8, 16, 1.5), (16, 1, 20.0), (16, 1, 50.0)],
)
def test_a_system_prompt_that_all_share_does_not_bring_all_to_one_replica(shared: int, own: int, rate: float) -> None:
    """The trap: with no pressure reported, the first to report the shared prompt would take the whole traffic."""
    trace = shared_prompt(shared, own, rate)
    turns, hints = replay(trace, Setting(), ["round_robin", "hints"])
    assert hints.load_imbalance <= 1.06
    assert hints.hit_rate >= turns.hit_rate - 0.01
    assert hints.ttft_p50_ms < 1.5 * turns.ttft_p50_ms
