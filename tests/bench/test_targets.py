"""How a run is held against its figures, and how the page shows it."""

from __future__ import annotations

from typing import Any

import pytest

from bench import cases
from bench.report import BEGIN, END, number, page, replace_measured, table
from bench.targets import TARGETS, Sense, Target, Verdict, judge


def target(sense: Sense, bound: float) -> Target:
    return Target("figure", "ms", sense, bound, lambda results: float(results["value"]))


@pytest.mark.parametrize(
    ("sense", "value", "text"),
    [
        (Sense.AT_MOST, 2.0, "reached"),
        (Sense.AT_MOST, 1.0, "reached"),
        (Sense.AT_MOST, 2.5, "missed by 0.5 ms (25%)"),
        (Sense.AT_LEAST, 2.0, "reached"),
        (Sense.AT_LEAST, 3.0, "reached"),
        (Sense.AT_LEAST, 1.5, "missed by 0.5 ms (25%)"),
    ],
)
def test_a_bound_itself_is_reached_and_a_miss_says_by_how_much(sense: Sense, value: float, text: str) -> None:
    assert judge(target(sense, 2.0), {"value": value}).text == text


def test_what_was_not_run_is_never_reached() -> None:
    verdict = judge(target(Sense.AT_MOST, 2.0), {})
    assert verdict == Verdict(verdict.target, None, 0.0)
    assert verdict.text == "not measured"
    assert {judge(each, {"cells": {}, "leaving": {}}).text for each in TARGETS} == {"not measured"}


def results() -> dict[str, Any]:
    """A run in which every figure is known."""
    plain = {"rps": 3000.0, "p50_ms": 2.0, "p99_ms": 3.0, "cpu_ms": 0.5, "rss_mb": 90.0, "errors": 0}
    plain["others_cpu_share"] = 0.25
    streamed = {**plain, "cpu_ms": 4.0, "ttft_p50_ms": 1.5, "ttft_p99_ms": 2.0, "chunks_per_s": 900.0}

    def cells(changes: dict[str, float], names: list[cases.Case]) -> dict[str, Any]:
        return {
            case.name: {
                str(c): {**(streamed if case.chunks else plain), **changes}
                for c in ((1, 16) if case.chunks else (1, 16, 64))
            }
            for case in names
        }

    everything = [cases.PLAIN, cases.MESSAGES, cases.INVOCATIONS, cases.REFUSAL, cases.PACED, cases.BURST]
    routed = [cases.PLAIN, cases.PACED, cases.BURST]
    return {
        "machine": {"memory": "25 GB"},
        "servers": {"plane": "TerraFlow", "mock": "mock", "litellm": "LiteLLM 1.2.3"},
        "cells": {
            "plane": cells({}, everything),
            "mock": cells({"p50_ms": 0.1}, [cases.PLAIN]) | cells({"ttft_p50_ms": 0.1}, [cases.PACED, cases.BURST]),
            "litellm": cells({"rps": 100.0}, routed),
        },
        "leaving": {"plane": {"trials": 20, "closed": 20, "waited_ms": 2000.0, "p50_ms": 2.0, "worst_ms": 9.0}},
        "records": {"connections": 64, "records": 20_000, "requests": 10_000, "seconds": 2.0, "per_s": 10_000.0},
        "soak": {
            **plain,
            "requests": 50_000,
            "connections": 16,
            "rss_start_mb": 80.0,
            "rss_peak_mb": 95.0,
            "rss_end_mb": 90.0,
            "memory": [{"at": float(i), "server": 90.0} for i in range(40)],
        },
    }


def test_every_figure_is_read_from_its_place() -> None:
    values = {each.name: judge(each, results()) for each in TARGETS}
    assert values["governed request, RPS over LiteLLM's, c=64"].value == 30
    assert values["governed request, p50 added over the mock, c=1"].value == pytest.approx(1.9)
    assert values["stream of 100 chunks, TTFT p50 added over the mock, c=1"].value == pytest.approx(1.4)
    assert values["stream of 100 chunks, CPU a chunk, every 2 ms, c=16"].value == pytest.approx(0.04)
    assert values["50 000 requests, RSS, growth over the second half"].value == 0
    missed = {name for name, verdict in values.items() if verdict.text != "reached"}
    assert missed == {f"refusal by policy, CPU, c={c}" for c in (1, 16, 64)}


def test_a_stream_that_was_never_closed_is_a_miss() -> None:
    run = results()
    run["leaving"]["plane"].update(closed=19, worst_ms=2000.0)
    verdict = next(judge(each, run) for each in TARGETS if each.name.startswith("upstream closed"))
    assert verdict.missed_by == 1900


def test_the_page_holds_every_cell_and_every_figure() -> None:
    text = page(results())
    assert text.count("| governed request: ") == 9 and text.count("| refusal by policy: TerraFlow") == 3
    assert text.count("| stream, ") == 12
    assert all(each.name in text for each in TARGETS)
    assert "took 0.25 of its cores beside the median cell, 0.25 beside the worst" in text
    assert "20 of 20 within 2000 ms" in text and "10 000/s" in text and "50000 requests at 16" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.02134, "0.021"), (4.0699, "4.07"), (41.234, "41.2"), (412.6, "413"), (18_400.4, "18 400")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_lines_up() -> None:
    assert table(["a", "bb"], [["x", "1"], ["long", "22"]]).splitlines() == [
        "| a    | bb |",
        "| ---- | -: |",
        "| x    |  1 |",
        "| long | 22 |",
    ]


def test_only_the_measured_section_of_a_page_is_replaced() -> None:
    page_text = f"# Head\n\n{BEGIN}\n\nold\n\n{END}\n\ntail\n"
    assert replace_measured(page_text, "new") == f"# Head\n\n{BEGIN}\n\nnew\n\n{END}\n\ntail\n"
    for broken in ("no marks", f"{END} {BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(ValueError, match="once each"):
            replace_measured(broken, "new")
