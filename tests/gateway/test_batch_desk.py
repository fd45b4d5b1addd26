"""A batch is made of all of its file, and what is held in memory while batches are handed in has a bound."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from terraflow.core.outcome import Refuse
from terraflow.gateway.batches.desk import UPLOADS_MAX, Asked
from terraflow.gateway.exchange import Declared
from terraflow.ports.batches import BatchFile
from terraflow.ports.store import KeyHolder
from terraflow.storage.sqlite.batch_files import PIECE_BYTES
from tests.harness import bundle
from tests.harness.batches import joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.inside import plane_inside
from tests.harness.wire import MemoryWire


async def test_so_many_are_read_from_their_connections_at_once(tmp_path: Path) -> None:
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        service = plane.parts.service
        headers = plane.headers({"content-type": "application/jsonl"})
        wire = MemoryWire("POST", b"/v1/batches", headers, joined([line("a")]))
        for _ in range(UPLOADS_MAX):
            await service.desk.uploads.acquire()
        asked = asyncio.create_task(service.handle(wire))
        await asyncio.wait((asked,), timeout=0.1)
        assert not asked.done()
        service.desk.uploads.release()
        await asyncio.wait_for(asked, 10)
        assert (wire.status, json.loads(wire.answer)["object"]) == (200, "batch")


async def test_a_file_that_is_not_whole_any_more_makes_no_batch(tmp_path: Path) -> None:
    caller = KeyHolder("acme", "web", "key_1")
    data = joined([line("a")]).ljust(PIECE_BYTES - 1) + b"\n" + joined([line("b")])
    async with plane_inside(tmp_path, bundle.document(purpose("night", sim("a"), priority=3))) as plane:
        desk = plane.parts.service.desk
        file = await desk.keep(caller, "asked.jsonl", data)
        assert isinstance(file, BatchFile)
        asked = Asked(endpoint="/v1/chat/completions", input_file=file.id)
        whole = await desk.create_of_file(caller, Declared(), asked)
        assert not isinstance(whole, Refuse) and whole.total == 2
        plane.parts.store._database.writer.execute("DELETE FROM batch_file_part WHERE no = 1")  # type: ignore[attr-defined]
        refuse = await desk.create_of_file(caller, Declared(), asked)
        assert isinstance(refuse, Refuse) and refuse.problems[0].field == "input_file_id"
