"""The runner of batches where the store fails at a verb, where tenants share it, and where an answer is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
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
from terraflow.ports.store import KeyHolder, StoreUnavailable
from tests.harness import bundle
from tests.harness.batches import CHAT, joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY
from tests.harness.inside import Inside, plane_inside

ACME, UMBRA = (KeyHolder(tenant, "web", "key_1") for tenant in ("acme", "umbra"))
SLOW: dict[str, Any] = {"latency_ms": 30}


class Failing:
    """The real store of batches, one verb of which fails the first time, before its effect or after it."""

    def __init__(self, real: Any, verb: str, *, effect: bool, meanwhile: Callable[[], Any] | None = None) -> None:
        self._real = real
        self._verb = verb
        self._effect = effect
        self._meanwhile = meanwhile
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name != self._verb or self.failed:
            return real

        async def fail(*args: Any, **named: Any) -> Any:
            self.failed += 1
            if self._effect:
                await real(*args, **named)
            if self._meanwhile is not None:
                await self._meanwhile()
            raise StoreUnavailable("the disk is gone")

        return fail


def document(*, tenants: bool = False) -> dict[str, Any]:
    purposes = [purpose("night", sim("a", SLOW), priority=3)]
    if tenants:
        purposes.append(purpose("theirs", sim("b", SLOW), tenant="umbra", priority=3))
    return bundle.document(*purposes)


async def begin(plane: Inside, caller: KeyHolder, *lines: Any) -> Batch:
    made = await plane.parts.service.edge.desk.create(caller, Declared(), Asked(), joined(lines))
    assert isinstance(made, Batch)
    return made


async def ended(plane: Inside, batch: Batch, caller: KeyHolder = ACME) -> Batch:
    async with asyncio.timeout(15):
        while True:
            found = await plane.parts.service.edge.desk.find(caller, batch.id)
            assert isinstance(found, Batch)
            if found.ended_at is not None:
                return found
            await asyncio.sleep(0.01)


async def all_begun(plane: Inside, items: int) -> None:
    """Return when one item is with its provider, and so many are inside."""
    async with asyncio.timeout(10):
        while True:
            if plane.upstream_calls and len(plane.parts.plane.running) == items:
                return
            await asyncio.sleep(0.005)


async def results(plane: Inside, batch: Batch, *, completed: bool) -> list[dict[str, Any]]:
    store = plane.parts.batches._store
    found = await store.results(batch, completed=completed, after=-1, limit=1_000)
    return [json.loads(each) for _, each in found]


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("verb", ["take_item", "end_item", "queued_items", "finalize_batch", "end_batch"])
async def test_a_verb_that_fails_costs_no_item_and_runs_none_twice(verb: str, effect: bool, tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document()) as plane:
        runner: Any = plane.parts.batches
        failing = runner._store = Failing(runner._store, verb, effect=effect)
        batch = await ended(plane, await begin(plane, ACME, *(line(f"{no}") for no in range(20))))
        assert failing.failed
        assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, 20, 0)
        found = await results(plane, batch, completed=True)
        assert len({each["custom_id"] for each in found}) == 20
        assert plane.upstream_calls == 20
        for each in found:
            outcome = await plane.parts.store.find_entries("acme", "web", each["response"]["request_id"])
            assert [entry.kind for entry in outcome] == ["intent", "outcome"]
            assert each["response"]["body"]["choices"][0]["finish_reason"] == "stop"


async def test_an_item_that_could_not_be_returned_runs_later(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        runner: Any = plane.parts.batches
        failing = runner._store = Failing(runner._store, "return_item", effect=False)
        sheds = iter([Governed.QUEUE_SHED])
        admission: Any = plane.parts.plane.admission
        enter = admission.enter

        async def full(*args: Any) -> Any:
            if next(sheds, None) is None:
                return await enter(*args)
            raise StoreUnavailable("evidence is gone")

        admission.enter = full
        batch = await ended(plane, await begin(plane, ACME, line("a"), line("b")))
        assert failing.failed
        assert (batch.completed, batch.failed, plane.upstream_calls) == (2, 0, 2)


class FailingTwice:
    """The real store of batches. The first item's end fails; while that item is settled the second one's fails, too."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._settles, self._failed = asyncio.Event(), asyncio.Event()
        self._firsts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def end_item(self, batch: Batch, no: int, request_id: str, **named: Any) -> None:
        """See the port."""
        self._firsts += no == 0
        if no == 0 and self._firsts == 2:
            self._settles.set()
            await self._failed.wait()
        elif not self._failed.is_set():
            if no:
                await self._settles.wait()
                self._failed.set()
            raise StoreUnavailable("the disk is gone")
        await self._real.end_item(batch, no, request_id, **named)


async def test_an_item_that_fails_while_others_are_settled_is_settled_too(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=2) as plane:
        runner: Any = plane.parts.batches
        runner._store = FailingTwice(runner._store)
        batch = await ended(plane, await begin(plane, ACME, line("a"), line("b")))
        assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, 2, 0)
        assert plane.upstream_calls == 2


async def test_an_answer_that_is_gone_is_not_asked_for_again(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document()) as plane:
        runner: Any = plane.parts.batches

        async def erase() -> None:
            plane.parts.store._database.writer.execute("DELETE FROM answer")  # type: ignore[attr-defined]

        runner._store = Failing(runner._store, "end_item", effect=False, meanwhile=erase)
        batch = await ended(plane, await begin(plane, ACME, line("a")))
        assert (batch.completed, batch.failed, plane.upstream_calls) == (0, 1, 1)
        [result] = await results(plane, batch, completed=False)
        facts = result["response"]["body"]["terraflow"]
        assert result["response"]["status_code"] == 409
        assert facts["reason_code"] == Governed.IDEMPOTENCY_REPLAY_NO_CONTENT
        assert facts["details"]["original_request_id"] == result["response"]["request_id"]


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


async def test_a_batch_that_could_not_be_opened_fails(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document()) as plane:
        desk: Any = plane.parts.service.edge.desk
        desk._store = Failing(desk._store, "open_batch", effect=True)
        with pytest.raises(StoreUnavailable):
            await begin(plane, ACME, line("a"))
        [opened], _ = await desk.page(ACME, None, 9)
        assert (await ended(plane, opened)).status is BatchStatus.FAILED
        assert plane.upstream_calls == 0


@pytest.mark.parametrize("verb", ["end_batch", "drop_items"])
async def test_of_a_batch_that_failed_nothing_is_kept_that_takes_room(verb: str, tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document()) as plane:
        desk: Any = plane.parts.service.edge.desk
        runner: Any = plane.parts.batches
        desk._store = Failing(desk._store, "open_batch", effect=True)
        failing = runner._store = Failing(runner._store, verb, effect=False)
        with pytest.raises(StoreUnavailable):
            await begin(plane, ACME, *(line(f"{no}") for no in range(40)))
        [opened], _ = await desk.page(ACME, None, 9)
        assert (await ended(plane, opened)).status is BatchStatus.FAILED
        async with asyncio.timeout(10):
            while len(runner._open):  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        assert failing.failed
        assert plane.parts.store._database.read("batch_bytes") == [(0,)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize(
    ("how", "verb"),
    [
        (BatchStatus.EXPIRED, "finalize_batch"),
        (BatchStatus.EXPIRED, "end_batch"),
        (BatchStatus.CANCELLED, "end_queued"),
    ],
)
async def test_what_ends_before_all_of_it_ran_says_so_whatever_fails(
    how: BatchStatus, verb: str, effect: bool, tmp_path: Path
) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=1) as plane:
        runner: Any = plane.parts.batches
        failing = runner._store = Failing(runner._store, verb, effect=effect)
        window_s = 1 if how is BatchStatus.EXPIRED else 600
        lines = joined(line(f"{no}") for no in range(100))
        batch = await plane.parts.service.edge.desk.create(ACME, Declared(), Asked(window_s=window_s), lines)
        assert isinstance(batch, Batch)
        if how is BatchStatus.CANCELLED:
            await plane.parts.service.edge.desk.cancel(ACME, batch.id)
        batch = await ended(plane, batch)
        assert failing.failed
        assert (batch.status, batch.completed, batch.total) == (how, plane.upstream_calls, 100)
        errors = [each["error"]["code"] for each in await results(plane, batch, completed=False)]
        assert errors == [f"batch_{how}"] * (100 - batch.completed)


@pytest.mark.parametrize("effect", [False, True])
async def test_a_cancellation_that_failed_is_asked_for_again(effect: bool, tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=1) as plane:
        desk: Any = plane.parts.service.edge.desk
        batch = await begin(plane, ACME, *(line(f"{no}") for no in range(100)))
        desk._store = Failing(desk._store, "cancel_batch", effect=effect)
        with pytest.raises(StoreUnavailable):
            await desk.cancel(ACME, batch.id)
        again = await desk.cancel(ACME, batch.id)
        assert again.status is BatchStatus.CANCELLING
        assert (await ended(plane, batch)).status is BatchStatus.CANCELLED


class Overtaken:
    """The real store of batches, where a cancellation comes right before or after the end is begun."""

    def __init__(self, real: Any, cancel: Callable[[Batch], Any], *, before: bool) -> None:
        self._real = real
        self._cancel = cancel
        self._before = before
        self.told: BatchStatus | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def finalize_batch(self, batch: Batch, now: Any) -> None:
        """See the port."""
        if self._before:
            self.told = (await self._cancel(batch)).status
        await self._real.finalize_batch(batch, now)
        if not self._before:
            self.told = (await self._cancel(batch)).status


@pytest.mark.parametrize(
    ("before", "told", "ends"),
    [
        (True, BatchStatus.CANCELLING, BatchStatus.CANCELLED),
        (False, BatchStatus.FINALIZING, BatchStatus.COMPLETED),
    ],
)
async def test_a_batch_ends_as_who_cancels_it_at_its_end_was_told(
    before: bool, told: BatchStatus, ends: BatchStatus, tmp_path: Path
) -> None:
    async with plane_inside(tmp_path, document()) as plane:
        runner: Any = plane.parts.batches
        desk = plane.parts.service.edge.desk
        store = runner._store = Overtaken(runner._store, lambda batch: desk.cancel(ACME, batch.id), before=before)
        batch = await ended(plane, await begin(plane, ACME, line("a")))
        assert (store.told, batch.status, batch.completed) == (told, ends, 1)
        assert (batch.cancelling_at is None) is not before


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
        batch = await ended(plane, await begin_pinned(plane, line("pinned", "a")))
        assert (batch.completed, batch.failed, plane.upstream_calls) == (1, 0, 2)


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
