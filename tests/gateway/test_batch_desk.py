"""A batch is made of all of its file, and what is held in memory while batches are handed in has a bound."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from terraflow.core.outcome import Refuse
from terraflow.core.types import Instant
from terraflow.gateway.batches.desk import PAGE_BYTES, READERS_MAX, Asked, ResultFile
from terraflow.gateway.batches.uploads import TENANT_MAX, WAITING_MAX
from terraflow.gateway.exchange import Declared
from terraflow.gateway.http.batches import FILES_PAGE_MAX
from terraflow.ports.batches import Batch, BatchFile, BatchStatus, Room
from terraflow.ports.store import KeyHolder
from terraflow.storage.sqlite.batch_files import PIECE_BYTES
from tests.harness import bundle
from tests.harness.batches import joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.inside import Inside, plane_inside
from tests.harness.wire import MemoryWire
from tests.storage.test_batches import batch

FORM = "multipart/form-data; boundary=edge"


def form(data: bytes) -> bytes:
    """A form with a file."""
    purpose_part = b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    return purpose_part + head + data + b"\r\n--edge--\r\n"


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches"])
async def test_a_tenant_whose_uploads_dawdle_waits_and_is_turned_away_and_another_is_not(
    path: str, tmp_path: Path
) -> None:
    night, theirs = purpose("night", sim("a"), priority=3), purpose("theirs", sim("b"), tenant="umbra", priority=3)
    async with plane_inside(tmp_path, bundle.document(night, theirs)) as plane, AsyncExitStack() as held:
        service = plane.parts.service

        def hand_in(workload: str, key: str | None = None) -> tuple[MemoryWire, asyncio.Task[None]]:
            lines = joined([line("a", workload)])
            body, kind = (lines, "application/jsonl") if path == "/v1/batches" else (form(lines), FORM)
            headers = plane.headers({"content-type": kind})
            if key is not None:
                headers = [(n, v if n != b"authorization" else b"Bearer " + key.encode()) for n, v in headers]
            wire = MemoryWire("POST", path.encode(), headers, body)
            return wire, asyncio.create_task(service.handle(wire))

        for _ in range(TENANT_MAX):
            await held.enter_async_context(service.edge.desk.uploads.place("acme"))
        waiting = [hand_in("night") for _ in range(WAITING_MAX)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for _, task in waiting)
        wire, task = hand_in("night")
        await asyncio.wait_for(task, 10)
        assert wire.status == 429
        assert json.loads(wire.answer)["terraflow"]["detail"] == "batches"
        wire, task = hand_in("theirs", plane.folder.issue_key("umbra"))
        await asyncio.wait_for(task, 10)
        assert wire.status == 200
        await held.aclose()
        await asyncio.wait_for(asyncio.gather(*(task for _, task in waiting)), 10)
        assert {wire.status for wire, _ in waiting} <= {200, 429}


async def test_a_flood_of_batches_of_one_file_keeps_no_other_tenant_waiting(tmp_path: Path) -> None:
    night, theirs = purpose("night", sim("a"), priority=3), purpose("theirs", sim("b"), tenant="umbra", priority=3)
    async with plane_inside(tmp_path, bundle.document(night, theirs), batches_open_max=1) as plane:
        service, handed = plane.parts.service, dict[str, list[MemoryWire]](acme=[], umbra=[])

        def hand_in(tenant: str, body: bytes, kind: str) -> asyncio.Task[None]:
            headers = plane.headers({"content-type": kind})
            if tenant == "umbra":
                key = plane.folder.issue_key(tenant).encode()
                headers = [(n, v if n != b"authorization" else b"Bearer " + key) for n, v in headers]
            handed[tenant].append(wire := MemoryWire("POST", b"/v1/batches", headers, body))
            return asyncio.create_task(service.handle(wire))

        file = await service.edge.desk.keep(
            KeyHolder("acme", "web", "key_1"), "a", joined(line(f"{no}") for no in range(2_000)), 3_600
        )
        assert isinstance(file, BatchFile)
        asked = json.dumps({"input_file_id": file.id, "endpoint": "/v1/chat/completions"}).encode()
        flood = [hand_in("acme", asked, "application/json") for _ in range(40)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(hand_in("umbra", joined([line("a", "theirs")]), "application/jsonl"), 10)
        assert handed["umbra"][0].status == 200
        assert sum(task.done() for task in flood) < 20
        await asyncio.wait_for(asyncio.gather(*flood), 20)


class Keeping:
    """The real store of batches, which keeps none until it may; `given` is how many it was given."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.given = 0
        self.may = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def open_batch(self, *given: Any) -> Any:
        """See the port."""
        self.given += 1
        await self.may.wait()
        return await self._real.open_batch(*given)


async def test_of_those_that_are_handed_in_one_batch_is_made_at_a_time(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk: Any = plane.parts.service.edge.desk
        caller, data = KeyHolder("acme", "web", "key_1"), joined([line("a")])
        file = await desk.keep(caller, "a", data, 3_600)
        of_file = Asked(endpoint="/v1/chat/completions", input_file=file.id)
        store = desk._store = Keeping(desk._store)
        inline = [asyncio.create_task(desk.create(caller, Declared(), Asked(), data)) for _ in range(2)]
        of_files = [asyncio.create_task(desk.create_of_file(caller, Declared(), of_file)) for _ in range(2)]
        await asyncio.sleep(0.2)
        assert store.given == 1
        store.may.set()
        made = await asyncio.wait_for(asyncio.gather(*inline, *of_files), 10)
        assert [type(one) for one in made] == [Batch] * 4


async def test_a_burst_of_small_files_is_kept(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        headers = plane.headers({"content-type": FORM})
        wires = [MemoryWire("POST", b"/v1/files", headers, form(joined([line("a")]))) for _ in range(100)]
        await asyncio.wait_for(asyncio.gather(*map(plane.parts.service.handle, wires)), 20)
        assert {wire.status for wire in wires} == {200}


async def test_a_file_that_is_not_whole_any_more_makes_no_batch(tmp_path: Path) -> None:
    caller = KeyHolder("acme", "web", "key_1")
    data = joined([line("a")]).ljust(PIECE_BYTES - 1) + b"\n" + joined([line("b")])
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk = plane.parts.service.edge.desk
        file = await desk.keep(caller, "asked.jsonl", data, 3_600)
        assert isinstance(file, BatchFile)
        asked = Asked(endpoint="/v1/chat/completions", input_file=file.id)
        whole = await desk.create_of_file(caller, Declared(), asked)
        assert not isinstance(whole, Refuse) and whole.total == 2
        plane.parts.store._database.writer.execute("DELETE FROM batch_file_part WHERE no = 1")  # type: ignore[attr-defined]
        refuse = await desk.create_of_file(caller, Declared(), asked)
        assert isinstance(refuse, Refuse) and refuse.problems[0].field == "input_file_id"


@pytest.mark.parametrize(("line_bytes", "at_once"), [(100, 16), (100_000, 2), (1_000_000, 1)])
async def test_of_long_results_few_are_in_memory_at_a_time(line_bytes: int, at_once: int, tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk, store = plane.parts.service.edge.desk, plane.parts.batches._store
        asked, now = batch(), plane.parts.plane.clock.now()
        made = await store.open_batch(asked, [b"{}"] * 20, Room(open_max=9, bytes_max=10_000_000))
        assert made is not None
        for no in range(20):
            await store.take_item(made, -1, f"req_{no}")
            line = b"x" * line_bytes
            await store.end_item(made, no, f"req_{no}", completed=True, line=line, key=f"key_{no}", now=now)
        await store.end_batch(made, BatchStatus.COMPLETED, now, Instant(now + 60_000_000))
        found = await store.find_batch(made.tenant, made.application, made.id, now)
        assert found is not None
        pieces = [piece async for piece in desk.pieces(ResultFile(found, True))]
        assert max(map(len, pieces)) == at_once * line_bytes
        assert sum(map(len, pieces)) == 20 * line_bytes


class Reading:
    """The real store of batches, and how many pieces were read in each turn of the loop."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._turn = 0
        self.reads = Counter[int]()
        self._next_turn()

    def _next_turn(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._next_turn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def read_piece(self, file: BatchFile, no: int) -> bytes | None:
        """See the port."""
        self.reads[self._turn] += 1
        return cast("bytes | None", await self._real.read_piece(file, no))

    async def list_files(self, *given: Any) -> Any:
        """See the port."""
        self.reads[self._turn] += 1
        return await self._real.list_files(*given)

    async def list_batches(self, *given: Any) -> Any:
        """See the port."""
        self.reads[self._turn] += 1
        return await self._real.list_batches(*given)


@asynccontextmanager
async def reading(path: Path, pieces: int) -> AsyncIterator[tuple[Inside, Reading, Callable[[], MemoryWire]]]:
    """A plane with a file of so many pieces, and requests that read it."""
    async with plane_inside(path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk: Any = plane.parts.service.edge.desk
        file = await desk.keep(KeyHolder("acme", "web", "key_1"), "a", b"x" * pieces * PIECE_BYTES, 3_600)
        store = desk._store = Reading(desk._store)
        target = f"/v1/files/{file.id}/content".encode()
        yield plane, store, lambda: MemoryWire("GET", target, plane.headers({}), b"")


async def test_who_reads_files_keeps_nobody_waiting_for_more_than_a_piece(tmp_path: Path) -> None:
    async with reading(tmp_path, 5) as (plane, store, ask):
        wires = [ask() for _ in range(20)]
        readers = asyncio.gather(*map(plane.parts.service.handle, wires))
        while not store.reads:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
        await plane.parts.plane.turns.take(lambda: None)
        assert store.reads.total() < 5, "who has a large body does not wait for them"
        desk, asked = plane.parts.service.edge.desk, Asked(input_file=wires[0].raw_path.decode().split("/")[3])
        assert isinstance(await desk.create_of_file(KeyHolder("acme", "web", "key_1"), Declared(), asked), Refuse)
        assert store.reads.total() < 30, "nor does a batch that is made"
        await asyncio.wait_for(readers, 20)
        assert {len(wire.answer) for wire in wires} == {5 * PIECE_BYTES}
        assert store.reads.total() == 21 * 6
        assert max(store.reads.values()) == 2


@pytest.mark.parametrize("path", [b"/v1/files", b"/v1/batches"])
async def test_lists_are_read_in_turns(path: bytes, tmp_path: Path) -> None:
    """A page of each is milliseconds where its batches have long metadata."""
    async with reading(tmp_path, 1) as (plane, store, _):
        wires = [MemoryWire("GET", path, plane.headers({}), b"") for _ in range(8)]
        await asyncio.wait_for(asyncio.gather(*map(plane.parts.service.handle, wires)), 20)
        assert {wire.status for wire in wires} == {200}
        assert store.reads.total() == 8
        assert max(store.reads.values()) == 1


async def test_a_page_of_files_or_of_batches_with_long_metadata_is_short_and_none_is_left_out(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk, caller = plane.parts.service.edge.desk, KeyHolder("acme", "web", "key_1")
        asked = Asked(metadata=b'{"note":"%s"}' % (b"x" * (PAGE_BYTES // 3)))
        made = [await desk.create(caller, Declared(), asked, joined([line("a")])) for _ in range(7)]
        paged: list[Batch] = []
        pages, more = [], True
        while more:
            page = await desk.page(caller, paged[-1].id if paged else None, 5)
            assert not isinstance(page, Refuse)
            paged += page[0]
            pages.append(len(page[0]))
            more = page[1]
        assert [one.id for one in paged[::-1]] == [one.id for one in made if isinstance(one, Batch)]
        assert pages == [2, 2, 2, 1]
        kept = [await desk.keep(caller, "a", b"x", 3_600) for _ in range(FILES_PAGE_MAX + 1)]
        wire = MemoryWire("GET", b"/v1/files?purpose=batch", plane.headers({}), b"")
        await plane.parts.service.handle(wire)
        listed = json.loads(wire.answer)
        assert (len(listed["data"]), listed["has_more"]) == (len(kept) - 1, True)


async def test_for_who_has_left_no_file_is_read_to_its_end(tmp_path: Path) -> None:
    async with reading(tmp_path, 20) as (plane, store, ask):
        wire = ask()
        task = asyncio.create_task(plane.parts.service.handle(wire))
        while not wire.answer:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
        wire.leave()
        await asyncio.wait_for(task, 10)
        assert store.reads.total() < 10


async def test_head_of_a_files_bytes_has_no_answer_and_reads_none(tmp_path: Path) -> None:
    async with reading(tmp_path, 1) as (plane, store, ask):
        wire = MemoryWire("HEAD", ask().raw_path, plane.headers({}), b"")
        await plane.parts.service.handle(wire)
        assert (wire.status, store.reads.total()) == (404, 0)


class Slow(MemoryWire):
    """A caller that takes nothing until it is told to."""

    takes = asyncio.Event()

    async def send_event(self, event: bytes) -> None:
        await super().send_event(event)
        await self.takes.wait()


async def test_a_tenant_reads_so_many_files_at_a_time_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "takes", asyncio.Event())
    async with reading(tmp_path, 5) as (plane, store, ask):
        service, target = plane.parts.service, ask().raw_path
        wires = [Slow("GET", target, plane.headers({}), b"") for _ in range(READERS_MAX + 4)]
        readers = asyncio.gather(*map(service.handle, wires))
        while sum(bool(wire.answer) for wire in wires) < READERS_MAX:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
        theirs = await service.edge.desk.keep(KeyHolder("umbra", "web", "key_2"), "b", b"theirs", 3_600)
        assert isinstance(theirs, BatchFile)
        key = plane.folder.issue_key("umbra")
        headers = plane.headers({"authorization": f"Bearer {key}"})
        other = MemoryWire("GET", f"/v1/files/{theirs.id}/content".encode(), headers, b"")
        await asyncio.wait_for(service.handle(other), 5)
        assert (other.status, other.answer) == (200, b"theirs")
        assert not any(wire.answer for wire in wires[READERS_MAX:])
        assert store.reads.total() == 2 * READERS_MAX + 2
        Slow.takes.set()
        await asyncio.wait_for(readers, 20)
        assert {len(wire.answer) for wire in wires} == {5 * PIECE_BYTES}
        assert not service.edge.desk._readers
