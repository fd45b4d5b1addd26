"""`terraflow status`: the state of a folder, beside a plane and without one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_data_folder import terraflow
from tests.harness.bundle import document, limit, moment, purpose, sim
from tests.harness.folder import DataFolder
from tests.harness.inside import plane_inside

BUDGETS = [limit("tenant", "acme", "month", "5"), limit("workload", "plain", "hour", "0.5")]


async def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await terraflow("status", "--data", folder, "--json")).stdout)
    return found


async def test_the_state_beside_a_running_plane_and_after_it(tmp_path: Path) -> None:
    path = tmp_path / "data"
    body = {"model": "plain", "messages": [{"role": "user", "content": "hello"}]}
    async with plane_inside(path, document(purpose("plain", sim("one")), budgets=BUDGETS)) as plane:
        heard = await plane.chat(body, **{"idempotency-key": "k-1"})
        assert heard.status == 200
        beside = await status(path)
        assert beside["plane_runs"] is True
    found = await status(path)
    assert (found["plane_runs"], found["open_requests"], found["troubles"]) == (False, 0, [])
    assert found["bundle"]["sequence"] == 1 and len(found["bundle"]["digest"]) == 64
    assert [notice["field"] for notice in found["bundle"]["notices"]] == ["expires"]
    [tenant] = found["tenants"]
    assert (tenant["tenant"], tenant["records"], tenant["signed"]) == ("acme", 2, 2)
    assert (tenant["keys"], tenant["answers"]) == (1, 1)
    budgets = {(row["level"], row["window"]): row for row in tenant["budgets"]}
    cost = budgets["tenant", "month"]["posted_micro_usd"]
    assert cost > 0
    assert budgets["tenant", "month"]["left_micro_usd"] == 5_000_000 - cost
    assert budgets["workload", "hour"]["limit_micro_usd"] == 500_000
    assert budgets["business_unit", "month"]["limit_micro_usd"] is None
    text = (await terraflow("status", "--data", path)).stdout
    assert f"{path}: no plane runs on it, 0 requests under way" in text
    assert "2 records, 2 signed, root " in text and "1 live key, 1 stored answer" in text
    assert next(line.split()[:2] for line in text.splitlines() if " 5 " in line) == ["tenant", "acme"]


async def test_what_keeps_a_plane_from_being_ready_is_told(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    assert (await status(folder.path))["troubles"] == ["no bundle is in force: every request is refused"]
    folder.activate(document(purpose("plain", sim("one"))) | {"expires": moment(-1)})
    assert (await status(folder.path))["troubles"] == ["the bundle in force has expired: every request is refused"]
    folder.tamper_with_bundle("signature")
    found = await status(folder.path)
    assert found["bundle"]["digest"] is None
    assert found["troubles"][0].startswith("the bundle in force does not verify: signature")


@pytest.mark.parametrize("lost", [True, False])
async def test_a_lost_or_a_strange_log_key_is_told(tmp_path: Path, lost: bool) -> None:
    path = tmp_path / "data"
    async with plane_inside(path, document(purpose("plain", sim("one")))) as plane:
        await plane.chat({"model": "plain", "messages": [{"role": "user", "content": "hello"}]})
    if lost:
        (path / "keys" / "log.pem").unlink()
    else:
        shutil.copy(path / "keys" / "bundle.pem", path / "keys" / "log.pem")
    [trouble] = (await status(path))["troubles"]
    assert ("cannot read the key" if lost else "is not the key that signed") in trouble
    assert f"TROUBLE  {trouble}" in (await terraflow("status", "--data", path)).stdout


async def test_a_folder_that_is_none(tmp_path: Path) -> None:
    assert "no TerraFlow database" in (await terraflow("status", "--data", tmp_path, code=2)).stderr
