"""Batches on a plane in the test's own process: made at its desk, waited for, their lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from terraflow.gateway.batches.desk import Asked
from terraflow.gateway.exchange import Declared
from terraflow.ports.batches import Batch
from terraflow.ports.store import KeyHolder
from tests.harness import bundle
from tests.harness.batches import joined
from tests.harness.bundle import purpose, sim
from tests.harness.inside import Inside

ACME, UMBRA = (KeyHolder(tenant, "web", "key_1") for tenant in ("acme", "umbra"))


SLOW: dict[str, Any] = {"latency_ms": 30}


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


async def left_by(runner: Any) -> None:
    """Return when the runner has no batch any more."""
    async with asyncio.timeout(10):
        while len(runner._open):  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


async def results(plane: Inside, batch: Batch, *, completed: bool) -> list[dict[str, Any]]:
    store = plane.parts.batches._store
    found = await store.results(batch, completed=completed, after=-1, limit=1_000)
    return [json.loads(each) for _, each in found]
