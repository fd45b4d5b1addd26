"""kill -9 of the whole plane at random moments under load: nothing acknowledged is lost, no money, no key.

    python -m trust.plane_kills [--count 1000] [--round 250] [--callers 16] [--seed 0] [--folder DIR] [--planted FAULT]

The real `terraflow serve` runs in front of a model server that counts, under callers that ask for everything (plain,
keyed with retries after the kill, streamed, left midway, cached, repaired, retried, refused, rate-limited, out of
budget). It is killed at a random moment: mostly under load, sometimes while it starts or while it drains. After each
start the folder is judged by what the callers were told and what the model saw (tests/harness/judge.py); after each
round the log is exported and verified against a checkpoint seen earlier. Most starts are forked off a process that has
the imports done, every twentieth is a command of its own.

`--planted` runs a plane with a fault (tests/faults/planted.py) that the judge must catch. Exits 0 if nothing was lost
(or the fault was caught), else prints what was and exits 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from tests.harness.counting import Counting
from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.judge import PlaneJudge
from tests.harness.killable import KillablePlane
from tests.harness.mix import TENANTS, Mix, document
from tests.harness.plane import NotServing
from tests.storage.durability import Acknowledged, problems

AFRESH_EVERY = 20
LOAD_S = (0.01, 0.3)
START_S = 0.5
DRAIN_S = 0.1
QUIET = {"access_log": False, "health_faults_max": 1_000_000}


class Figures(NamedTuple):
    """What a round came to."""

    kills: int
    answered: int
    recovered: int
    outcomes: dict[str, int]
    problems: list[str]


class Round:
    """Kills on one folder."""

    def __init__(self, folder: Path, forks: Forks, upstream: Counting, seed: int, callers: int, fault: str | None):
        self._chance = random.Random(seed)
        self._upstream = upstream
        self._callers = callers
        self._folder = DataFolder(folder)
        self._folder.activate(document(upstream.port))
        self._mix = Mix({tenant: self._folder.issue_key(tenant) for tenant in TENANTS}, seed)
        self._plane = KillablePlane(self._folder, forks, fault=fault, **QUIET)
        self._judge = PlaneJudge(folder)
        self.done = 0

    async def run(self, count: int) -> Figures:
        """Kill it so often, or until something is found."""
        found: list[str] = []
        seen_at = self._chance.randrange(count // 2, count) if count > 1 else 0
        try:
            while self.done < count and not found:
                if self.done == seen_at:
                    self._see_checkpoints()
                found = await self._kill()
                self.done += 1
            found = found or await self._end()
        except NotServing as trouble:
            found = [f"it did not start: {trouble}"]
        finally:
            if self._plane.running:
                self._plane.kill()
        return Figures(self.done, self._mix.answered, self._judge.recovered, self._judge.outcomes, found)

    async def _kill(self) -> list[str]:
        how = self._chance.random()
        self._plane.begin(afresh=self.done % AFRESH_EVERY == AFRESH_EVERY - 1)
        if how < 0.08:
            await asyncio.sleep(self._chance.random() * START_S)
            self._plane.kill()
            return []
        found = self._listen_and_look()
        if found:
            return found
        load = asyncio.ensure_future(self._mix.run(self._port(), self._callers))
        await asyncio.sleep(self._chance.uniform(*LOAD_S))
        if how < 0.13:
            self._plane.send(signal.SIGTERM)
            await asyncio.sleep(self._chance.random() * DRAIN_S)
        self._plane.send(signal.SIGKILL)
        await load
        await self._upstream.idle()
        self._plane.reap()
        return []

    def _listen_and_look(self) -> list[str]:
        self._plane.listen()
        return self._judge.look(self._mix, self._upstream)

    def _port(self) -> int:
        return urlsplit(self._plane.base_url).port or 0

    def _see_checkpoints(self) -> None:
        """Put the newest checkpoint of every tenant aside, as an auditor would."""
        query = (
            "SELECT id, note, max(size) FROM checkpoint JOIN tenant ON no = tenant_no GROUP BY tenant_no ORDER BY size"
        )
        for tenant, note, _ in self._folder.rows(query):
            self._seen(tenant).write_bytes(note)

    def _seen(self, tenant: str) -> Path:
        return self._folder.path.with_name(f"seen-{tenant}")

    async def _end(self) -> list[str]:
        """Answer what is owed, stop it in peace, and judge all of it again, with the tools of an auditor too."""
        self._plane.begin()
        found = self._listen_and_look()
        await self._mix.settle(self._port(), self._callers)
        status = self._plane.stop()
        await self._upstream.idle()
        found += self._judge.look(self._mix, self._upstream)
        if status != 0:
            found.append(f"it ended with {status}")
        found += problems(self._folder.path, Acknowledged())
        found += self._folder.loose_ends()
        for tenant in TENANTS:
            found += self._verify(tenant)
        return found

    def _verify(self, tenant: str) -> list[str]:
        out = self._folder.path.with_name(f"export-{tenant}")
        data = ["--tenant", tenant, "--data", str(self._folder.path)]
        _terraflow("evidence", "export", *data, "--out", str(out))
        key = _terraflow("evidence", "key", *data).strip()
        seen = self._seen(tenant)
        previous = ["--previous", str(seen)] if seen.exists() else []
        verdict = json.loads(_terraflow("verify", str(out), "--key", key, *previous, "--json"))
        query = "SELECT count(*) FROM leaf JOIN tenant ON no = position >> 40 WHERE id = ?"
        [(leaves,)] = self._folder.rows(query, tenant)
        whole = verdict["verified"] and verdict["size"] == leaves and verdict["open"] == 0
        return [] if whole else [f"the export of {tenant}: {verdict}, and {leaves} leaves are stored"]


def _terraflow(*arguments: str) -> str:
    command = Path(sys.executable).with_name("terraflow")
    return subprocess.run([command, *arguments], check=False, capture_output=True, text=True).stdout


async def kills(
    folder: Path, count: int, *, seed: int = 0, callers: int = 16, fault: str | None = None, each: int = 50
) -> Figures:
    """Kill one plane on a new folder `count` times, telling of every `each`."""
    upstream = await Counting(seed).start()
    try:
        with Forks() as forks:
            one = Round(folder, forks, upstream, seed, callers, fault)
            telling = asyncio.ensure_future(_tell(one, each))
            try:
                return await one.run(count)
            finally:
                telling.cancel()
    finally:
        await upstream.stop()


async def _tell(one: Round, each: int) -> None:
    told, began = 0, time.monotonic()
    while True:
        await asyncio.sleep(1)
        if one.done // each > told:
            told = one.done // each
            print(f"  {one.done} kills of this round, {time.monotonic() - began:.0f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--round", type=int, default=250, help="kills on one folder before a fresh one is taken")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where to put the data, to choose the disk")
    parser.add_argument("--planted", default=None, help="a fault that must be caught")
    options = parser.parse_args(arguments)
    began, done, answered, recovered = time.monotonic(), 0, 0, 0
    outcomes: dict[str, int] = {}
    found: list[str] = []
    while done < options.count and not found:
        number = min(options.round, options.count - done)
        with (
            tempfile.TemporaryDirectory(dir=options.folder) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            seed = options.seed + done // options.round
            figures = runner.run(
                kills(Path(folder) / "data", number, seed=seed, callers=options.callers, fault=options.planted)
            )
        done, answered, recovered = done + figures.kills, answered + figures.answered, recovered + figures.recovered
        for code, times in figures.outcomes.items():
            outcomes[code] = outcomes.get(code, 0) + times
        found = figures.problems
        print(f"{done}/{options.count} kills, {answered} answers, {recovered} left by a crash", flush=True)
    print("\n".join(found[:20]))
    print("recorded: " + ", ".join(f"{code} {times}" for code, times in sorted(outcomes.items())))
    seconds = time.monotonic() - began
    print(f"{done} kills in {seconds:.0f} s, {answered} answers, {recovered} left by a crash, {len(found)} problems")
    return 0 if bool(found) is (options.planted is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
