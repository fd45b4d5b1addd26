"""The runner of batches: where tenants share it, where items wait, and where one meets a fault nobody foresaw."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from terraflow.core.reasons import Governed
from terraflow.gateway.batches.desk import Asked
from terraflow.gateway.batches.item import may_run_later
from terraflow.gateway.batches.open_batches import Open
from terraflow.gateway.exchange import Declared
from terraflow.gateway.health import HealthRule
from terraflow.gateway.mouths.openai_chat import CHAT as CHAT_MOUTH
from terraflow.ports.batches import Batch, BatchStatus
from tests.gateway.batch_plane import ACME, UMBRA, begin, document, ended, results
from tests.harness import bundle
from tests.harness.batches import CHAT, joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY
from tests.harness.inside import Inside, plane_inside


async def all_begun(plane: Inside, items: int) -> None:
    """Return when one item is with its provider, and so many are inside."""
    async with asyncio.timeout(10):
        while True:
            if plane.upstream_calls and len(plane.parts.plane.running) == items:
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("verb", ["parse", "render"])
async def test_an_item_that_meets_a_fault_nobody_foresaw_ends_as_one_and_holds_no_other_up(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        if verb == "render" or b"poison" in args[0]:
            raise RuntimeError(CANARY)
        return CHAT_MOUTH.parse(*args)

    mouth = msgspec.structs.replace(CHAT_MOUTH, **{verb: fail})
    monkeypatch.setattr("terraflow.gateway.batches.item.ENDPOINTS", {CHAT: mouth})
    async with plane_inside(tmp_path, document(), batch_running_max=1) as plane:
        given = (line("a", text="poison"),) if verb == "render" else (line("a", text="poison"), line("b"))
        batch = await ended(plane, await begin(plane, ACME, *given))
        [failed] = await results(plane, batch, completed=False)
        assert failed["custom_id"].startswith("a ")
        assert (failed["response"]["status_code"], failed["response"]["body"]["error"]["code"]) == (
            500,
            Governed.INTERNAL_ERROR,
        )
        assert CANARY not in json.dumps(failed["response"])
        assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, len(given) - 1, 1)
        assert plane.upstream_calls == 1


async def test_no_tenant_waits_for_anothers_batch(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document(tenants=True), batch_running_max=4) as plane:
        large = await begin(plane, ACME, *(line(f"{no}") for no in range(100)))
        await asyncio.sleep(0.1)
        small = await begin(plane, UMBRA, *(line(f"{no}", "theirs") for no in range(10)))
        await ended(plane, small, UMBRA)
        found = await plane.parts.service.edge.desk.find(ACME, large.id)
        assert isinstance(found, Batch) and found.completed < 60
        running = await plane.parts.batches._store.running_items(found)
        assert len(running) <= 4
        await ended(plane, large)


async def test_no_more_items_run_at_once_than_may(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=3) as plane:
        for _ in range(3):
            await begin(plane, ACME, *(line(f"{no}") for no in range(12)))
        most = 0
        while await plane.parts.batches._store.open_batches():
            most = max(most, len(plane.parts.plane.running))
            await asyncio.sleep(0.005)
        assert most == 3


async def test_an_item_waits_for_its_slot_beyond_the_deadline_of_requests(tmp_path: Path) -> None:
    slow = purpose("night", sim("a", {"latency_ms": 300}, in_flight_max=1), priority=3, deadline_ms=1_000)
    async with plane_inside(tmp_path, bundle.document(slow)) as plane:
        batch = await ended(plane, await begin(plane, ACME, *(line(f"{no}") for no in range(8))))
        assert (batch.completed, batch.failed, plane.upstream_calls) == (8, 0, 8)


@pytest.mark.parametrize("door", [False, True], ids=["at the slot", "at the door"])
@pytest.mark.parametrize("how", [BatchStatus.CANCELLED, BatchStatus.EXPIRED])
async def test_items_that_wait_when_their_batch_stops_are_asked_of_nobody(
    how: BatchStatus, door: bool, tmp_path: Path
) -> None:
    one_slot = {} if door else {"in_flight_max": 1}
    slow = purpose("night", sim("a", {"latency_ms": 1_500}, **one_slot), priority=3)
    async with plane_inside(tmp_path, bundle.document(slow), running_max=1 if door else 64) as plane:
        desk = plane.parts.service.edge.desk
        window_s = 1 if how is BatchStatus.EXPIRED else 600
        lines = joined(line(f"{no}") for no in range(6))
        batch = await desk.create(ACME, Declared(), Asked(window_s=window_s), lines)
        assert isinstance(batch, Batch)
        await all_begun(plane, 6)
        if how is BatchStatus.CANCELLED:
            await desk.cancel(ACME, batch.id)
        batch = await ended(plane, batch)
        assert (batch.status, batch.completed, batch.failed, plane.upstream_calls) == (how, 1, 5, 1)
        errors = [each["error"]["code"] for each in await results(plane, batch, completed=False)]
        assert errors == [f"batch_{how}"] * 5
        gave_way = [
            row
            for (data,) in plane.folder.rows("SELECT data FROM leaf WHERE kind = 'outcome'")
            if (row := json.loads(data))["reason_code"] == Governed.CANCELLED
        ]
        assert [(row["detail"], row.get("cost_micro_usd", 0), row.get("attempts", [])) for row in gave_way] == [
            ("batch_stopped", 0, [])
        ] * 5


async def test_a_plane_that_stops_begins_no_item_that_waits(tmp_path: Path) -> None:
    slow = purpose("night", sim("a", {"latency_ms": 200}, in_flight_max=1), priority=3)
    async with plane_inside(tmp_path, bundle.document(slow)) as plane:
        runner, store = plane.parts.batches, plane.parts.batches._store
        batch = await begin(plane, ACME, *(line(f"{no}") for no in range(6)))
        await all_begun(plane, 6)
        runner.stop_taking()
        await runner.drained(10)
        assert plane.upstream_calls == 1
        assert len(await store.queued_items(batch, 10)) == 5
        assert len(await results(plane, batch, completed=True)) == 1


async def test_an_item_pinned_to_a_capability_that_rests_waits_for_it(tmp_path: Path) -> None:
    night = purpose("night", sim("a"), sim("b"), priority=3)
    async with plane_inside(tmp_path, bundle.document(night)) as plane:
        health, clock = plane.parts.plane.health, plane.parts.plane.clock
        for _ in range(HealthRule().faults_max):
            health.failed("a", clock.monotonic(), clock.monotonic(), None)
        desk = plane.parts.service.edge.desk
        batch = await desk.create(ACME, Declared(workload="night"), Asked(), joined([line("pinned", "a")]))
        assert isinstance(batch, Batch)
        await asyncio.sleep(0.2)
        resting = await desk.find(ACME, batch.id)
        assert isinstance(resting, Batch)
        assert (resting.status, resting.failed, plane.upstream_calls) == (BatchStatus.IN_PROGRESS, 0, 0)
        assert await plane.parts.batches._store.queued_items(resting, 9)


def test_a_rest_is_what_is_asked_and_ever_longer_up_to_a_minute() -> None:
    running, now, rests = Open(cast("Batch", None), troubled=False), 100.0, []
    for asked_s in (0, 0, 0, 9, 0, 0, 0, 0, 900):
        running.rest(now, asked_s)
        running.rest(now, 50)
        rests.append(running.rest_until - now)
        now = running.rest_until
    assert rests == [1, 2, 4, 9, 18, 36, 60, 60, 60]


async def test_a_batch_rests_as_long_as_a_refusal_says(tmp_path: Path) -> None:
    night = purpose("night", sim("a"), priority=3, requests_per_minute=1)
    async with plane_inside(tmp_path, bundle.document(night)) as plane:
        batch = await begin(plane, ACME, line("a"), line("b"))
        runner: Any = plane.parts.batches
        running, clock = runner._open.find(batch.id), plane.parts.plane.clock
        async with asyncio.timeout(10):
            while not running.rest_until:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        assert 30 < running.rest_until - clock.monotonic() <= 60


def resting_after_a_call() -> dict[str, Any]:
    """A workload whose first capability fails the first time that it is called, and then rests where one fault is
    enough."""
    return bundle.document(purpose("night", sim("a", {"fail": "authentication"}, {}), sim("b"), priority=3))


async def begin_pinned(plane: Inside, *lines: Any) -> Batch:
    failed = await plane.chat(line("", "a")["body"], **{"x-terraflow-workload": "night"})
    assert failed.status == 503
    batch = await plane.parts.service.edge.desk.create(ACME, Declared(workload="night"), Asked(), joined(lines))
    assert isinstance(batch, Batch)
    return batch


async def test_an_item_whose_capability_rested_runs_when_it_is_back(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, resting_after_a_call(), health_faults_max=1, health_rest_s=1) as plane:
        begun = await begin_pinned(plane, line("pinned", "a"))
        runner: Any = plane.parts.batches
        running = runner._open.find(begun.id)
        batch = await ended(plane, begun)
        assert (batch.completed, batch.failed, plane.upstream_calls) == (1, 0, 2)
        assert running.rest_until and not running.pause_s, "its next rest is a short one again"


async def test_items_that_wait_for_their_capability_hold_no_others_up(tmp_path: Path) -> None:
    settings = {"batch_running_max": 2, "health_faults_max": 1, "health_rest_s": 600}
    async with plane_inside(tmp_path, resting_after_a_call(), **settings) as plane:
        lines = [line("pinned", "a"), line("pinned too", "a"), line("free", "b"), line("free too", "b")]
        batch = await begin_pinned(plane, *lines)
        desk = plane.parts.service.edge.desk
        async with asyncio.timeout(10):
            while True:
                found = await desk.find(ACME, batch.id)
                assert isinstance(found, Batch)
                if found.completed == 2:
                    break
                await asyncio.sleep(0.02)
        assert (found.status, found.failed) == (BatchStatus.IN_PROGRESS, 0)


PASSING = {
    Governed.BUNDLE_EXPIRED,
    Governed.BUNDLE_INVALID,
    Governed.DEADLINE_EXPIRED,
    Governed.EVIDENCE_UNAVAILABLE,
    Governed.PROVIDER_UNHEALTHY,
    Governed.QUEUE_SHED,
    Governed.RATE_LIMITED,
    Governed.TENANT_QUEUE_LIMIT,
    Governed.TIER_NOT_AVAILABLE,
}
"""What the plane, or a provider, lacks at the moment."""


@pytest.mark.parametrize("code", list(Governed))
def test_what_may_run_later(code: Governed) -> None:
    assert may_run_later(code, "", called=False) is (code in PASSING)
    assert not may_run_later(code, "plane_stopped", called=True)
    stopped = code in PASSING or code is Governed.INTERNAL_ERROR
    assert may_run_later(code, "plane_stopped", called=False) is stopped
    gave_way = code in PASSING or code is Governed.CANCELLED
    assert may_run_later(code, "batch_stopped", called=False) is gave_way
    assert not may_run_later(code, "batch_stopped", called=True)
