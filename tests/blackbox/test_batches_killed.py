"""A plane that is killed again and again while it runs a batch: no item is run twice, none is lost, the money is exact.

What a vendor had been asked when the plane was killed is charged at its worst case and ends as a fault: whether it was
answered, nobody can know. Everything else runs, once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from terraflow.core.reasons import Governed
from terraflow.core.types import parse_usd
from tests.blackbox.conftest import Launch
from tests.harness import bundle
from tests.harness.batches import ENDED, answer_key, create, ended, line, made, now, results
from tests.harness.bundle import purpose, remote, sim
from tests.harness.upstreams import COST, Upstreams, answer
from tests.providers.vendor import Reply, Request

ITEMS = 600
KILLS = 6


def after(seconds: float, reply: Reply) -> Reply:
    """A reply that takes its time."""

    async def wait(writer: asyncio.StreamWriter, request: Request) -> None:
        await asyncio.sleep(seconds)
        await reply(writer, request)

    return wait


def test_a_killed_plane_runs_every_item_once(launch: Launch, tmp_path: Path, upstreams: Upstreams) -> None:
    vendor = upstreams.open(after(0.02, answer()))
    document = bundle.document(purpose("night", remote("engine", vendor.port, in_flight_max=64), priority=3))
    site = launch(document, answer_key_file=answer_key(tmp_path / "key"))
    batch = made(site.caller, *(line(f"{no}", text=f"number {no}.") for no in range(ITEMS)))
    chance = random.Random(7)
    cut = 0
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.05, 0.3))
        assert now(site.caller, batch)["status"] not in ENDED
        site.plane.kill()
        cut += len(site.folder.rows("SELECT 1 FROM batch_item WHERE state = 'running'"))
        site.plane.start()
    batch = ended(site.caller, batch, within_s=40)
    found = results(site.caller, batch)
    assert len(found) == ITEMS, "none is lost"
    asked = Counter(request.body["messages"][0]["content"] for request in vendor.requests)
    assert max(asked.values()) == 1, "none is run twice"
    codes = Counter(each["response"]["body"]["terraflow"]["reason_code"] for each in found.values())
    assert set(codes) <= {Governed.PERMITTED, Governed.INTERNAL_ERROR}
    assert cut and 0 < codes[Governed.INTERNAL_ERROR] <= cut
    assert len(asked) >= codes[Governed.PERMITTED]
    charged = 0
    for each in found.values():
        response = each["response"]
        cost = parse_usd(response["body"]["terraflow"]["cost_usd"])
        outcome = site.caller.evidence(response["request_id"])["outcome"]
        assert (outcome["reason_code"], outcome.get("cost_micro_usd", 0)) == (
            response["body"]["terraflow"]["reason_code"],
            cost,
        )
        assert cost == COST or outcome["recovered"]
        charged += cost
    assert site.folder.money() == (0, charged), "the money is exact"


def test_a_batch_that_a_kill_met_while_it_was_kept_is_whole_or_failed(launch: Launch, tmp_path: Path) -> None:
    document = bundle.document(purpose("night", sim("a"), priority=3))
    site = launch(document, answer_key_file=answer_key(tmp_path / "key"))
    lines = [line(f"{no}") for no in range(1_500)]
    for after_s in (0.03, 0.06, 0.09, 0.12, 0.2):
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(create, site.caller, *lines)
            time.sleep(after_s)
            site.plane.kill()
            answered = not isinstance(asked.exception(), httpx2.TransportError)
        site.plane.start()
        listed = site.caller.get("/batches").json()["data"]
        if answered:
            assert asked.result().json()["id"] == listed[0]["id"], "what was acknowledged is there"
    for batch in site.caller.get("/batches").json()["data"]:
        status = "failed" if batch["status"] in ("failed", "validating") else "completed"
        batch = ended(site.caller, batch, status)
        counts = batch["request_counts"]
        assert counts["total"] == 1_500
        assert counts["completed"] + counts["failed"] == (1_500 if status == "completed" else 0)
        assert len(results(site.caller, batch)) == counts["completed"] + counts["failed"]
