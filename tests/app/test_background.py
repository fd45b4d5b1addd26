"""Background work is told of when it fails, and keeps nothing from its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from pathlib import Path

import pytest

from terraflow.app.background import again, beside
from terraflow.app.runtime import SystemClock
from terraflow.gateway.heartbeats import Heartbeats
from terraflow.storage.sqlite.folder import plane_runs
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import plane_inside


def said(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(record.getMessage() for record in caplog.records if record.name == "terraflow.background")


async def test_what_fails_is_told_without_its_text_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    failures = iter([OSError("a secret")])

    async def work() -> None:
        for failure in failures:
            raise failure
        done.set()

    async with contextlib.AsyncExitStack() as closing:
        beside(closing, again(SystemClock(), 0.001, work))
        async with asyncio.timeout(5):
            await done.wait()
    assert "OSError at" in said(caplog) and "is tried again" in said(caplog)
    assert "secret" not in caplog.text and "has ended" not in said(caplog)


@pytest.mark.parametrize(("fault", "told"), [(ValueError("a secret"), "ValueError at"), (None, "by itself")])
async def test_what_ends_by_itself_is_told_and_the_rest_is_ended(
    caplog: pytest.LogCaptureFixture, fault: Exception | None, told: str
) -> None:
    ended = []

    async def ends() -> None:
        if fault is not None:
            raise fault

    async def goes_on() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("it")

    async with contextlib.AsyncExitStack() as closing:
        beside(closing, goes_on())
        beside(closing, ends())
        await asyncio.sleep(0.01)
    assert ended == ["it"]
    assert f"has ended: {told}" in said(caplog)
    assert "secret" not in caplog.text


async def test_work_that_comes_to_an_end_when_it_is_ended_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def yields() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async with contextlib.AsyncExitStack() as closing:
        beside(closing, yields())
        await asyncio.sleep(0)
    assert said(caplog) == ""


async def test_what_fails_while_it_is_ended_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_to_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("a secret")

    async with contextlib.AsyncExitStack() as closing:
        beside(closing, fails_to_end())
        await asyncio.sleep(0)
    gc.collect()
    assert "has ended: OSError at" in said(caplog)
    assert "secret" not in caplog.text


async def test_a_plane_one_of_whose_background_works_broke_is_stopped_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: Heartbeats) -> None:
        raise RuntimeError

    monkeypatch.setattr(Heartbeats, "keep_beating", broken)
    caplog.set_level(logging.ERROR)
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m")))) as inside:
        assert (await inside.chat({"messages": [{"role": "user", "content": "hello"}]})).status == 200
    assert "has ended: RuntimeError" in said(caplog)
    assert not plane_runs(tmp_path / "data")
