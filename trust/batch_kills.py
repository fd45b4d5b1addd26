"""kill -9 of the plane at random moments of batches: none is lost, no item runs twice, no result is missing.

    python -m trust.batch_kills [--count 200] [--seed 0] [--folder DIR] [--planted FAULT]

The real `terraflow serve` runs in front of a model server that counts. A caller uploads files, makes batches of them
and of lines, lets some expire, cancels some and erases files, until the plane is killed; then the next one goes on. In
the end every batch is judged by what its caller was told, what the model saw, and the money.

`--planted` runs a plane with a fault (tests/faults/planted.py) that must be caught. Exits 0 if nothing was found (or
the fault was caught), else prints what was and exits 1.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.harness import bundle
from tests.harness.batches import CHAT, ENDED
from tests.harness.bundle import purpose, remote
from tests.harness.counting import Counting
from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.killable import KillablePlane

LOAD_S = (0.02, 0.6)
ENDS_S = 120.0
SMALL = 3
CODES = {"PERMITTED", "INTERNAL_ERROR"}
"""How an item may end that became a request: a crash may have cut it off."""

Json = dict[str, Any]


class Figures(NamedTuple):
    """What it came to."""

    batches: Counter[str]
    items: Counter[str]
    problems: list[str]


class Caller:
    """Makes batches until its plane is gone. `made` are those that it was told of, with the names of their items."""

    def __init__(self, api_key: str, chance: random.Random) -> None:
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._chance = chance
        self._serial = itertools.count()
        self.made: dict[str, list[str]] = {}
        self.cancelling: set[str] = set()

    def http(self, base_url: str) -> httpx2.AsyncClient:
        """A client of the plane that runs now."""
        return httpx2.AsyncClient(base_url=base_url, headers=self._headers, timeout=20)

    async def run(self, base_url: str) -> None:
        """Go on until the plane does not answer any more."""
        async with self.http(base_url) as http:
            try:
                while True:
                    await self._act(http)
                    await asyncio.sleep(self._chance.random() * 0.05)
            except (httpx2.HTTPError, json.JSONDecodeError):
                return

    async def _act(self, http: httpx2.AsyncClient) -> None:
        if self.made and self._chance.random() < 0.2:
            await self._cancel(http, self._chance.choice(list(self.made)))
            return
        names = [f"{next(self._serial):06d}" for _ in range(self._chance.choice((1, 1, SMALL, 20, 150)))]
        lines = "\n".join(map(_line, names)).encode()
        if self._chance.random() < 0.5:
            response = await http.post("/batches", content=lines, headers={"Content-Type": "application/jsonl"})
        else:
            form: Json = {"files": {"file": ("asked.jsonl", lines)}, "data": {"purpose": "batch"}}
            file = (await http.post("/files", **form)).json()
            window = self._chance.choice(("1s", "24h"))
            asked = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": window}
            response = await http.post("/batches", json=asked)
            await http.delete(f"/files/{file['id']}")
        if response.status_code != 200:
            return
        named = response.json()["id"]
        self.made[named] = names
        if len(names) <= SMALL and self._chance.random() < 0.5:
            # Some of these cancellations meet the batch at its end.
            await asyncio.sleep(self._chance.random() * 0.08)
            await self._cancel(http, named)

    async def _cancel(self, http: httpx2.AsyncClient, named: str) -> None:
        answer = (await http.post(f"/batches/{named}/cancel")).json()
        if answer["status"] == "cancelling":
            self.cancelling.add(named)


def _line(name: str) -> str:
    body = {"model": "night", "messages": [{"role": "user", "content": f"ask plain:{name}"}]}
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": body})


class Judge:
    """What is wrong with the batches of a caller, once they have ended."""

    def __init__(self, caller: Caller, upstream: Counting) -> None:
        self._caller = caller
        self._upstream = upstream
        self.batches: Counter[str] = Counter()
        self.items: Counter[str] = Counter()
        self.problems: list[str] = []

    async def look(self, base_url: str) -> None:
        """Wait until every batch has ended, and judge it."""
        async with self._caller.http(base_url) as http:
            for named, names in self._caller.made.items():
                batch = await self._ended(http, named)
                self.batches[batch["status"]] += 1
                found = await self._lines(http, batch)
                self._batch(batch, names, Counter(line["custom_id"] for line in found))
                for line in found:
                    self._item(batch, line)
        for ask, calls in self._upstream.calls.items():
            if calls > 1:
                self.problems.append(f"{ask} was asked for {calls} times")

    async def _ended(self, http: httpx2.AsyncClient, named: str) -> Json:
        ends = time.monotonic() + ENDS_S
        while True:
            batch: Json = (await http.get(f"/batches/{named}")).json()
            if batch["status"] in ENDED or time.monotonic() > ends:
                return batch
            await asyncio.sleep(0.1)

    async def _lines(self, http: httpx2.AsyncClient, batch: Json) -> list[Json]:
        found: list[Json] = []
        for field, good in (("output_file_id", True), ("error_file_id", False)):
            if batch[field] is None:
                continue
            content = (await http.get(f"/files/{batch[field]}/content")).content
            lines = [json.loads(line) for line in content.splitlines()]
            answered = [line for line in lines if line["error"] is None and line["response"]["status_code"] < 400]
            if len(answered) != len(lines) * good:
                self.problems.append(f"{batch['id']}: a line is in the wrong file")
            found += lines
        return found

    def _batch(self, batch: Json, names: list[str], found: Counter[str]) -> None:
        counts = batch["request_counts"]
        if batch["status"] not in ("completed", "cancelled", "expired"):
            self.problems.append(f"{batch['id']} was accepted and is {batch['status']}")
        if counts["completed"] + counts["failed"] != counts["total"] or counts["total"] != len(names):
            self.problems.append(f"{batch['id']} of {len(names)} items counts {counts}")
        if found != Counter(names):
            self.problems.append(f"{batch['id']} has {found.total()} lines for {len(names)} items")
        if batch["id"] in self._caller.cancelling and batch["status"] != "cancelled":
            self.problems.append(f"{batch['id']} was cancelling and is {batch['status']}")

    def _item(self, batch: Json, line: Json) -> None:
        calls = self._upstream.calls.get(f"plain:{line['custom_id']}", 0)
        if line["error"] is not None:
            self.items[line["error"]["code"]] += 1
            if calls:
                self.problems.append(f"{batch['id']} says that {line['custom_id']} never ran, and it was asked for")
            return
        code = line["response"]["body"]["terraflow"]["reason_code"]
        self.items[code] += 1
        if code not in CODES or (code == "PERMITTED" and not calls):
            self.problems.append(f"{batch['id']}: {line['custom_id']} ended as {code} after {calls} calls")


async def kills(folder: Path, count: int, *, seed: int = 0, fault: str | None = None) -> Figures:
    """Kill one plane on a new folder so often, and judge what is left."""
    chance = random.Random(seed)
    upstream = await Counting(seed, slowest_s=0.05).start()
    try:
        data = DataFolder(folder)
        night = purpose("night", remote("engine", upstream.port, in_flight_max=6), priority=3)
        data.activate(bundle.document(night))
        caller = Caller(data.issue_key(), chance)
        judge = Judge(caller, upstream)
        with Forks() as forks:
            plane = KillablePlane(data, forks, fault=fault, access_log=False, health_faults_max=1_000_000)
            for _ in range(count):
                plane.start()
                load = asyncio.ensure_future(caller.run(plane.base_url))
                await asyncio.sleep(chance.uniform(*LOAD_S))
                plane.kill()
                await load
            plane.start()
            await judge.look(plane.base_url)
            plane.stop()
        return Figures(judge.batches, judge.items, judge.problems + data.loose_ends())
    finally:
        await upstream.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where to put the data, to choose the disk")
    parser.add_argument("--planted", default=None, help="a fault that must be caught")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = asyncio.run(kills(Path(folder) / "data", options.count, seed=options.seed, fault=options.planted))
    print("\n".join(figures.problems[:20]))
    for what, counted in (("batches", figures.batches), ("items", figures.items)):
        print(f"{what}: " + ", ".join(f"{times} {code}" for code, times in sorted(counted.items())))
    print(f"{options.count} kills in {time.monotonic() - began:.0f} s, {len(figures.problems)} problems")
    return 0 if bool(figures.problems) is (options.planted is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
