"""The runner of batches where the store fails at a verb, or is slow at it: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terraflow.app.settings import Settings
from terraflow.app.wiring import start
from terraflow.core.reasons import Governed
from terraflow.core.types import Instant
from terraflow.gateway.batches.desk import Asked
from terraflow.gateway.exchange import Declared
from terraflow.ports.batches import Batch, BatchStatus
from terraflow.ports.runtime import Clock
from terraflow.ports.store import Entry, StoreUnavailable
from tests.gateway.batch_plane import ACME, begin, document, ended, left_by, results
from tests.harness import bundle
from tests.harness.batches import joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.inside import plane_inside


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
        await left_by(runner)


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
        await left_by(runner)
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


class EndsMeanwhile:
    """The real store of batches. The first item's end fails; while that item is settled the second one ends."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._settles, self._ended = asyncio.Event(), asyncio.Event()
        self._firsts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def end_item(self, batch: Batch, no: int, request_id: str, **named: Any) -> None:
        """See the port."""
        if no:
            await self._settles.wait()
            await self._real.end_item(batch, no, request_id, **named)
            self._ended.set()
            return
        self._firsts += 1
        if self._firsts == 1:
            raise StoreUnavailable("the disk is gone")
        self._settles.set()
        await self._ended.wait()
        await self._real.end_item(batch, no, request_id, **named)


async def test_an_item_that_ends_while_others_are_settled_is_left_to_whoever_runs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=2) as plane:
        runner: Any = plane.parts.batches
        runner._store = EndsMeanwhile(runner._store)
        batch = await ended(plane, await begin(plane, ACME, line("a"), line("b")))
        assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, 2, 0)
    assert not [record for record in caplog.records if record.name == "terraflow.batches"]


class EndsFail:
    """The real store of batches. Each item's end fails the first time."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._failed = set[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def end_item(self, batch: Batch, no: int, request_id: str, **named: Any) -> None:
        """See the port."""
        if no not in self._failed:
            self._failed.add(no)
            raise StoreUnavailable("the disk is gone")
        await self._real.end_item(batch, no, request_id, **named)


class Unended:
    """The real store, in which the first request that is asked for has not ended yet."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._asked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def find_entries(self, tenant: str, application: str, request_id: str) -> list[Entry]:
        """See the port."""
        found = await self._real.find_entries(tenant, application, request_id)
        asked, self._asked = self._asked, True
        return [entry for entry in found if asked or entry.kind != "outcome"]


async def test_an_item_whose_request_has_not_ended_yet_is_decided_later_whatever_comes_behind_it(
    tmp_path: Path,
) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=2) as plane:
        runner: Any = plane.parts.batches
        runner._store = EndsFail(runner._store)
        runner._plane = msgspec.structs.replace(runner._plane, store=Unended(runner._plane.store))
        batch = await ended(plane, await begin(plane, ACME, line("a"), line("b")))
        assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, 2, 0)
        assert plane.upstream_calls == 2


class SetBack:
    """The real clock, whose time of day may be set back."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self.back_s = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def now(self) -> Instant:
        """See the port."""
        return Instant(self._real.now() - self.back_s * 1_000_000)


async def test_a_batch_whose_end_was_begun_ends_so_whatever_the_clock_says_since(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, document(), batch_running_max=1) as plane:
        runner: Any = plane.parts.batches
        clock = SetBack(plane.parts.plane.clock)
        runner._plane = msgspec.structs.replace(runner._plane, clock=clock)

        async def set_back() -> None:
            clock.back_s = 3_600

        failing = runner._store = Failing(runner._store, "end_queued", effect=False, meanwhile=set_back)
        lines = joined(line(f"{no}") for no in range(100))
        made = await plane.parts.service.edge.desk.create(ACME, Declared(), Asked(window_s=1), lines)
        assert isinstance(made, Batch)
        batch = await ended(plane, made)
        assert failing.failed
        assert (batch.status, batch.completed + batch.failed) == (BatchStatus.EXPIRED, 100)


async def test_what_is_left_of_a_batch_that_failed_goes_with_the_next_start(tmp_path: Path) -> None:
    stuck = asyncio.Event()

    async def never() -> None:
        stuck.set()
        await asyncio.Event().wait()

    async with plane_inside(tmp_path, document()) as plane:
        desk: Any = plane.parts.service.edge.desk
        runner: Any = plane.parts.batches
        desk._store = Failing(desk._store, "open_batch", effect=True)
        runner._store = Failing(runner._store, "drop_items", effect=True, meanwhile=never)
        with pytest.raises(StoreUnavailable):
            await begin(plane, ACME, *(line(f"{no}") for no in range(40)))
        await asyncio.wait_for(stuck.wait(), 10)
        [opened], _ = await desk.page(ACME, None, 9)
        assert opened.status is BatchStatus.FAILED
    parts = await start(Settings(data_dir=str(tmp_path)))
    try:
        await left_by(parts.batches)
        found = await parts.service.edge.desk.find(ACME, opened.id)
        assert isinstance(found, Batch)
        assert (found.status, found.ended_at is None, found.completed) == (BatchStatus.FAILED, False, 0)
        assert parts.store._database.read("batch_bytes") == [(0,)]  # type: ignore[attr-defined]
    finally:
        await parts.stop()
