"""When a caller's leaving stops its request, over a whole plane: a keyed one that is not streamed always runs on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from terraflow.gateway.admission import Admission
from terraflow.gateway.admission_queue import Ticket
from terraflow.gateway.capacity import Capacity
from terraflow.gateway.health import Health
from terraflow.gateway.mouths.openai_chat import ChunkWriter
from terraflow.ports.upstream import Chunk
from terraflow.providers.simulated import SimulatedProvider
from tests.harness.bundle import APPLICATION, TENANT, document, purpose, sim
from tests.harness.inside import plane_inside
from tests.harness.wire import MemoryWire


@pytest.mark.parametrize(
    ("stream", "reason"), [(False, Governed.PERMITTED), (True, Governed.CANCELLED)], ids=["plain", "streamed"]
)
async def test_a_caller_that_leaves_while_its_key_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, reason: Governed
) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        store = inside.parts.store
        real, claiming, left = type(store).claim, asyncio.Event(), asyncio.Event()

        async def claim(self: Any, *given: Any) -> Any:
            claiming.set()
            await left.wait()
            return await real(self, *given)

        monkeypatch.setattr(type(store), "claim", claim)
        wire = MemoryWire("POST", b"/v1/chat/completions", inside.headers({"idempotency-key": "k"}), _body(stream))
        answered = asyncio.create_task(inside.parts.service.handle(wire))
        await claiming.wait()
        wire.leave()
        left.set()
        await answered
        [(request_id,)] = inside.folder.rows("SELECT request_id FROM leaf WHERE kind = 'outcome'")
        _, outcome = await store.find_entries(TENANT, APPLICATION, request_id)
    assert json.loads(outcome.data)["reason_code"] == reason
    assert inside.upstream_calls == (reason is Governed.PERMITTED)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_caller_that_leaves_while_the_intent_is_recorded_has_asked_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        store = inside.parts.store
        real = type(store).begin
        wire = MemoryWire("POST", b"/v1/chat/completions", inside.headers({}), _body(stream))

        async def begin(self: Any, *given: Any) -> Any:
            wire.leave()
            return await real(self, *given)

        monkeypatch.setattr(type(store), "begin", begin)
        await inside.parts.service.handle(wire)
        [(data,)] = inside.folder.rows("SELECT data FROM leaf WHERE kind = 'outcome'")
        outcome = json.loads(data)
        assert (outcome["reason_code"], outcome["detail"]) == (Governed.CANCELLED, "caller_left")
        assert (inside.upstream_calls, outcome.get("attempts", []), inside.folder.money()) == (0, [], (0, 0))
        assert inside.parts.plane.capacity._taken == {}


def told_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each request that leaves the door from now on was with a provider, by what the door is told."""
    elsewhere: list[float] = []
    real = Admission.leave

    def leave(self: Admission, ticket: Ticket, elsewhere_s: float) -> None:
        elsewhere.append(elsewhere_s)
        real(self, ticket, elsewhere_s)

    monkeypatch.setattr(Admission, "leave", leave)
    return elsewhere


@pytest.mark.parametrize("also", [None, (Capacity, "give_back"), (Health, "abandoned"), (Admission, "leave")])
async def test_a_fault_in_a_providers_client_leaves_nothing_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: tuple[type, str] | None
) -> None:
    elsewhere = told_elsewhere(monkeypatch)

    async def complete(*_: object) -> None:
        await asyncio.sleep(0.1)
        raise RuntimeError

    def broken(*_: object) -> None:
        raise RuntimeError

    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        monkeypatch.setattr(SimulatedProvider, "complete", complete)
        if also is not None:
            monkeypatch.setattr(*also, broken)
        heard = await inside.chat({"messages": [{"role": "user", "content": "hello"}]})
        assert heard.headers["x-terraflow-reason"] == Governed.INTERNAL_ERROR
        plane = inside.parts.plane
        assert len(plane.running) == 0
        if also != (Admission, "leave"):
            assert plane.admission.running == 0
            assert len(elsewhere) == 1 and elsewhere[0] >= 0.1
        if also != (Capacity, "give_back"):
            assert plane.capacity._taken == {}


@pytest.mark.parametrize("where", [(ChunkWriter, "__init__"), (ChunkWriter, "event"), (Capacity, "began")])
async def test_a_fault_after_a_streams_first_chunk_leaves_nothing_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[type, str]
) -> None:
    closed: list[bool] = []

    async def stream(*_: object) -> AsyncIterator[Chunk]:
        try:
            while True:
                yield Chunk(choices=[{"index": 0, "delta": {"content": "more"}, "finish_reason": None}])
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    def broken(*_: object) -> None:
        raise RuntimeError

    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        monkeypatch.setattr(SimulatedProvider, "stream", stream)
        monkeypatch.setattr(*where, broken)
        wire = MemoryWire("POST", b"/v1/chat/completions", inside.headers({}), _body(True))
        await inside.parts.service.handle(wire)
        plane = inside.parts.plane
        assert closed == [True]
        assert (len(plane.running), plane.admission.running, plane.capacity._taken) == (0, 0, {})
        [(kind,)] = inside.folder.rows("SELECT kind FROM leaf ORDER BY position DESC LIMIT 1")
        assert kind == "outcome"


@pytest.mark.parametrize("full", [True, False], ids=["for a slot", "before a retry"])
async def test_what_a_caller_waited_for_before_it_left_is_not_the_planes_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    made = sim("m", {"fail": "rate_limited", "retry_after_s": 5}, in_flight_max=1)
    elsewhere = told_elsewhere(monkeypatch)
    async with plane_inside(tmp_path / "data", document(purpose("w", made))) as inside:
        capacity = inside.parts.plane.capacity
        wire = MemoryWire("POST", b"/v1/chat/completions", inside.headers({}), _body(False))
        if full:
            assert capacity.try_take("m", 1)
        answered = asyncio.create_task(inside.parts.service.handle(wire))
        ends = time.monotonic() + 10
        while not (capacity._waiting if full else inside.upstream_calls):
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        wire.leave()
        await answered
    assert len(elsewhere) == 1 and elsewhere[0] > 0.2


def _body(stream: bool) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": stream}).encode()
