"""The overload bench: what it sends and when, and what it makes of what came back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from bench.open_loop import LOST, WARM_CONNECTIONS, Phase, Row, Sent, Spec, arrivals, generate
from bench.overload import CAPACITY, FLOOD, STEADY, TIMES, overload_source, phases
from bench.overload_report import STARVED, Figures, table
from terraflow.contracts.references import find_problems
from terraflow.contracts.source import parse_source

PLAN = (Phase("one", 20.0, {"a": 50.0, "b": 5.0}), Phase("two", 10.0, {"a": 0.0, "b": 20.0}))


def test_arrivals_are_the_same_for_the_same_seed_and_as_many_as_asked_for() -> None:
    due = arrivals(PLAN, 1)
    assert due == sorted(due) == arrivals(PLAN, 1) != arrivals(PLAN, 2)
    counts = {key: sum((phase, tenant) == key for _, phase, tenant, _ in due) for key in [(0, "a"), (0, "b"), (1, "b")]}
    assert 900 < counts[(0, "a")] < 1_100 and 70 < counts[(0, "b")] < 130 and 160 < counts[(1, "b")] < 240
    assert sum(counts.values()) == len(due)
    assert all(at == pytest.approx(due_s + 20.0 * phase) for at, phase, _, due_s in due)


def test_the_flood_makes_up_ten_times_what_can_be_served_and_the_others_stay_within_their_shares() -> None:
    plan = {phase.name: phase for phase in phases(10.0)}
    assert sum(plan["ten times"].rates.values()) == pytest.approx(TIMES * CAPACITY)
    assert plan["after"].rates[FLOOD] == plan["alone"].rates[FLOOD] == 0
    assert all(plan["ten times"].rates[tenant] < CAPACITY / 4 for tenant in STEADY)


def test_the_bundle_has_a_workload_for_each_tenant() -> None:
    document = parse_source(overload_source("http://127.0.0.1:9/v1").encode())
    assert find_problems(document) == ()
    assert {entry.tenant for entry in document.workloads} == {*STEADY, FLOOD}


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def sent_to(handler: Handler, phase: Phase, grace_s: float) -> Sent:
    """What the generator says of a phase against a server of this handler, whose connections are closed behind it."""
    handlers: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    spec = Spec(
        host="127.0.0.1", port=port, path="/", tenants={"t": "x: y"}, body="{}", phases=(phase,), grace_s=grace_s
    )
    sent = await generate(spec)
    server.close()
    await asyncio.wait(handlers, timeout=5)
    await asyncio.sleep(0.01)
    return sent


@pytest.mark.parametrize("closes", [False, True], ids=["kept", "closed"])
async def test_the_generator_does_not_wait_for_answers(closes: bool) -> None:
    """Every answer takes a second, and all are asked for in a fifth of one."""
    waiting, most = 0, 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting, most
        while await reader.readuntil(b"\r\n\r\n") and await reader.readexactly(2):
            waiting += 1
            most = max(most, waiting)
            await asyncio.sleep(1)
            waiting -= 1
            shut = b"connection: close\r\n" if closes else b""
            writer.write(b"HTTP/1.1 429 No\r\nretry-after: 7\r\n" + shut + b"content-length: 0\r\n\r\n")
            await writer.drain()

    sent = await sent_to(answer, Phase("p", 0.2, {"t": 1_000.0}), grace_s=5)
    assert len(sent.rows) > 130 and most > WARM_CONNECTIONS + 50
    assert {(row.status, row.retry_after_s, row.tenant) for row in sent.rows} == {(429, 7, "t")}
    assert all(1_000 <= row.took_ms < 3_000 for row in sent.rows)


async def test_what_is_never_answered_is_lost() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(10)

    sent = await sent_to(hang_up, Phase("p", 0.1, {"t": 200.0}), grace_s=1)
    assert sent.rows and {row.status for row in sent.rows} == {LOST}


def figures(rows: list[Row], **changes: Any) -> Figures:
    found = Figures(
        rows=rows,
        phases=phases(10.0),
        deadline_ms=2_000,
        steady=STEADY,
        idle_mb=100.0,
        peak_mb=150.0,
        probe_slowest_ms=20.0,
        probe_failed=0,
        probe_questions=1_000,
        connections=100,
        generator_late_mean_ms=0.1,
        generator_cpu=0.1,
        plane_cpu=0.5,
        all_cpu=0.7,
        reserved=0,
        posted=90,
        evidence=90,
        unended=0,
        recorded={200: 10_000, 429: 10_000},
        heard={200: 1, 429: 1},
        lost=0,
    )
    return msgspec.structs.replace(found, **changes)


def good_rows() -> list[Row]:
    """All is well: steady tenants at 300 ms throughout, the flood gets what is left and is shed in 5 ms."""
    rows = []
    for number, phase in enumerate(phases(10.0)):
        rows += [Row(number, STEADY[0], i / 100 * phase.seconds, 300.0, 200, -1) for i in range(100)]
        if phase.rates[FLOOD]:
            count = int(200 * phase.seconds)
            rows += [Row(number, FLOOD, i / 200, 400.0, 200, -1) for i in range(count)]
            rows += [Row(number, FLOOD, i / 200, 5.0, 429, 2) for i in range(count)]
    return rows


def missed(found: Figures) -> list[str]:
    return [figure.name for figure in found.figures() if not figure.reached]


def test_when_all_is_well_every_figure_is_reached() -> None:
    assert missed(figures(good_rows())) == []
    assert "missed" not in table("door", figures(good_rows()))


def test_each_figure_is_missed_by_what_it_is_there_for() -> None:
    flood = next(n for n, phase in enumerate(phases(1)) if phase.name == "ten times")

    def spoiled(**changes: Any) -> list[str]:
        tenant, phase = changes.pop("tenant", STEADY[0]), changes.pop("phase", flood)
        rows = [msgspec.structs.replace(row) for row in good_rows()]
        for row in rows:
            if (row.tenant, row.phase, row.status) == (tenant, phase, changes.get("was", 200)):
                for name, value in changes.items():
                    if name != "was":
                        setattr(row, name, value)
        return missed(figures(rows))

    assert spoiled(tenant=FLOOD, took_ms=2_001.0) == ["goodput at ten times the load, of the peak"]
    assert "tenants within their share, served" in spoiled(status=504)
    assert spoiled(took_ms=601.0) == ["their p99, of that alone"]
    assert spoiled(tenant=FLOOD, was=429, took_ms=21.0) == ["a shed, p99"]
    assert spoiled(phase=flood + 1, took_ms=700.0) == ["back to normal after the flood"]
    assert missed(figures(good_rows(), peak_mb=201.0)) == ["memory above idle"]
    for change in ({"probe_slowest_ms": 251.0}, {"probe_failed": 1}):
        assert missed(figures(good_rows(), **change)) == ["health and readiness, slowest answer"]
    assert missed(figures(good_rows(), reserved=1)) == ["money still reserved afterwards"]
    assert missed(figures(good_rows(), posted=91)) == ["money posted, and in the evidence, micro-dollars"]
    for change in ({"unended": 1}, {"heard": {200: 10_001}}):
        assert missed(figures(good_rows(), **change)) == ["answers without their record, requests without an outcome"]


def test_a_starved_plane_is_judged_by_what_it_can_serve_there() -> None:
    flood = next(n for n, phase in enumerate(phases(1)) if phase.name == "ten times")
    rows = good_rows()
    for row in rows:
        if (row.tenant, row.phase) == (FLOOD, flood):
            row.took_ms = 90.0 if row.status == 429 else row.took_ms
    spoiled = [row for row in rows if (row.tenant, row.phase, row.status) == (FLOOD, flood, 200)]
    for row in spoiled[: len(spoiled) // 6]:
        row.status = 504
    assert missed(figures(rows, bounds=STARVED)) == []
    assert missed(figures(rows)) == ["goodput at ten times the load, of the peak", "a shed, p99"]
    for row in spoiled[: len(spoiled) // 3]:
        row.status = 504
    assert missed(figures(rows, bounds=STARVED)) == ["goodput at ten times the load, of the peak"]


async def test_the_generator_says_what_was_governed() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reason in (b"x-terraflow-reason: PERMITTED\r\n", b""):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(b"HTTP/1.1 200 OK\r\n" + reason + b"content-length: 0\r\n\r\n")
        await reader.read()

    sent = await sent_to(answer, Phase("p", 0.1, {"t": 1_000.0}), grace_s=1)
    assert {row.governed for row in sent.rows if row.status == 200} == {True, False}


def test_the_model_of_the_mock_takes_its_time() -> None:
    models = {entry["model"] for entry in json.loads(overload_source("http://127.0.0.1:9/v1"))["capabilities"]}
    assert models == {"mock-latency-250"}
