"""The mock and the load generator against each other, as processes: what one sent is what the other counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import cases
from bench.leaving import leaving
from bench.load import Reading, Spec, others_s
from bench.mock_upstream import behaviour
from bench.process_cost import Cost
from bench.processes import NotStarted, Server, first_json_line, get, post, running
from bench.run import measure, mock_upstream

STREAM = cases.Case("short stream", "any-stream-7", chunks=7)


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Server]:
    with mock_upstream(tmp_path) as server:
        yield server


def counted(mock: Server) -> dict[str, Any]:
    status, body = get(mock.port, "/stats")
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    return found


def run(mock: Server, case: cases.Case, **changes: Any) -> dict[str, Any]:
    return measure(mock, mock, case, 4, **{"seconds": 10.0, "count": 200, "warmup_s": 0.0, **changes})


def test_every_request_is_counted_once_on_both_sides(mock: Server) -> None:
    result = run(mock, cases.PLAIN)
    assert (result["requests"], result["errors"], result["statuses"]) == (200, 0, {"200": 200})
    assert counted(mock)["requests"] == 200
    assert 0 < result["p50_ms"] <= result["p99_ms"]
    assert result["rss_mb"] > 1


def test_a_warm_up_is_in_no_figure(mock: Server) -> None:
    result = run(mock, cases.PLAIN, warmup_s=0.1)
    assert result["requests"] == 200 < counted(mock)["requests"]


def test_time_ends_a_run_that_has_no_count(mock: Server) -> None:
    result = run(mock, cases.PLAIN, seconds=0.2, count=0)
    assert 0.2 <= result["seconds"] < 5.0 and result["requests"] > 10


def test_a_stream_is_whole_only_with_all_its_chunks(mock: Server) -> None:
    result = run(mock, STREAM)
    assert (result["requests"], result["errors"], result["chunks"]) == (200, 0, 1400)
    assert counted(mock)["streams_finished"] == 200
    assert 0 < result["ttft_p50_ms"] <= result["p50_ms"]
    more_wanted = run(mock, cases.Case("short stream", "any-stream-7", chunks=8), count=3)
    assert more_wanted["errors"] == 3 and "events" in more_wanted["first_error"]


def test_another_status_is_an_error_and_the_first_is_shown(mock: Server) -> None:
    result = run(mock, cases.PLAIN, count=5, url=f"http://127.0.0.1:{mock.port}/nothing")
    assert (result["errors"], result["statuses"]) == (5, {"404": 5})
    assert "no such path" in result["first_error"]


def test_what_is_never_answered_is_an_error_and_ends(mock: Server) -> None:
    result = run(mock, cases.Case("slow", "any-latency-5000"), seconds=0.1, grace_s=0.2)
    assert (result["requests"], result["errors"]) == (0, 4)


def test_the_mock_sees_when_its_reader_leaves(mock: Server) -> None:
    result = leaving(mock, mock, trials=2)
    assert result["closed"] == 2
    assert result["worst_ms"] < 500
    assert [left["user"] for left in counted(mock)["left"]] == ["trial-0-of-mock", "trial-1-of-mock"]


def test_usage_is_shown_to_those_who_ask(mock: Server) -> None:
    asked = json.dumps({"model": "any-stream-2", "stream": True, "stream_options": {"include_usage": True}})
    events = post(mock, asked)[2].decode().split("\n\n")
    assert len(events) == 2 + 1 + 1 + 1 + 1
    assert json.loads(events[3].removeprefix("data: "))["usage"]["total_tokens"] == 120
    assert "usage" not in post(mock, '{"model": "any-stream-2", "stream": true}')[2].decode()


def test_what_others_took_is_the_rest_and_a_process_named_twice_counts_once() -> None:
    spec = Spec(
        url="",
        headers=(),
        body="",
        connections=1,
        seconds=1,
        processes={"server": 7, "mock": 7, "generator's child": 8},
    )
    start = Reading({name: Cost(1.0, 0) for name in spec.processes}, own_s=1.0, busy_s=100.0)
    spent = {"server": Cost(3.0, 0), "mock": Cost(3.0, 0), "generator's child": Cost(1.5, 0)}
    assert others_s(spec, start, Reading(spent, own_s=2.0, busy_s=110.0)) == 10 - 2 - 0.5 - 1
    assert others_s(spec, start, Reading(spent, own_s=2.0, busy_s=103.0)) == 0


def test_a_model_name_says_what_the_mock_does() -> None:
    asked = behaviour("mock-stream-12-interval-30-latency-250")
    assert (asked.chunks, asked.interval_s, asked.latency_s) == (12, 0.03, 0.25)
    assert behaviour("bench").interval_s == 0


def test_a_process_that_does_not_come_up_is_said_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command, env = ["sh", "-c", "echo broken >&2; exit 3"], {"PATH": "/usr/bin:/bin"}
    with running(command, log, env) as process, pytest.raises(NotStarted, match=r"ended with 3\nbroken"):
        first_json_line(process, log, within_s=5)
