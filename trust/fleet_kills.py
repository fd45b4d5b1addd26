"""kill -9 and SIGSTOP of engines and of the hint service under load: no governed request fails, and none waits long.

    python -m trust.fleet_kills [--count 40] [--seed 0] [--folder DIR]

The real `terraflow serve` runs over three simulated engines and a hint service, each a process of its own. Under
callers that never pause, one at a time is done at random: an engine is killed, the service is killed, both are, the
service is stopped and goes on later; what was killed comes back on its port before the next. Every answer must be a
success.

Then, one call at a time, the same prompts are sent with the service well, dead and stopped, and a client that has not
yet given the service up asks a stopped one: how long each takes. Exits 0 if nothing failed, the median call was not
held up by more than the hint deadline, and no lookup took much longer than its deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import uvloop

from terraflow.app.runtime import SystemClock
from terraflow.hints.plane.breaker import FAILURES_MAX
from terraflow.hints.plane.client import RemoteHints
from terraflow.ports.hints import Prefix
from tests.harness.bundle import document, purpose
from tests.harness.caller import Caller
from tests.harness.engines import Beside, again, engines, fleet, hint_service
from tests.harness.fleet_load import LONG, Load
from tests.harness.folder import DataFolder
from tests.harness.plane import Plane

DEADLINE_S = 0.005
SLACK_S = 0.010
"""What a timer may be late on a machine that does much else."""
SINGLE = 150
LOOKUPS = 50


class Site:
    """The processes, and what is done to them."""

    def __init__(self, folder: Path, stack: ExitStack, **settings: object) -> None:
        self._folder = folder
        self._stack = stack
        self.engines = stack.enter_context(engines(folder))
        self.service = stack.enter_context(hint_service(folder))
        self.address = str(self.service.said["grpc"])
        data = DataFolder(folder / "data")
        data.activate(document(purpose("chat", fleet("m", self.engines))))
        key = data.issue_key()
        self.plane = stack.enter_context(Plane(data, hints=self.address, access_log=False, **settings))
        self.caller = Caller(self.plane, key)
        stack.callback(self.caller.close)

    def serve_hints(self) -> None:
        """The service again, on the port that it had."""
        self.service = self._stack.enter_context(hint_service(self._folder, int(self.address.rpartition(":")[2])))

    def serve_engine(self, at: int) -> None:
        """An engine again, with an empty cache."""
        self.engines[at] = self._stack.enter_context(again(self._folder, self.engines[at]))


def strike(site: Site, how: str, load: Load, chance: random.Random) -> None:
    """Do one thing under load, and bring back what it ended."""
    at = chance.randrange(len(site.engines))
    if how in ("engine", "both"):
        site.engines[at].kill()
    if how in ("service", "both"):
        site.service.kill()
    if how == "stop":
        site.service.pause()
    load.run(20, 60)
    if how in ("engine", "both"):
        site.serve_engine(at)
    if how in ("service", "both"):
        site.serve_hints()
    if how == "stop":
        site.service.go_on()
    load.run(20, 60)


def singles(caller: Caller) -> list[float]:
    """How long calls take, one at a time."""
    took = []
    for at in range(SINGLE):
        began = time.perf_counter()
        assert caller.ask("chat", f"{at % 10} {LONG}").status_code == 200
        took.append(time.perf_counter() - began)
    return sorted(took)


async def lookups(address: str) -> list[float]:
    """How long lookups take of clients that do not know yet how the service is."""
    prefix = Prefix(tenant="fleet", model="sim", scheme="s", hashes=[b"12345678"] * 8, counts=[128] * 8, tokens=1024)
    took: list[float] = []
    while len(took) < LOOKUPS:
        client = RemoteHints(address, SystemClock(), try_timeout_s=DEADLINE_S)
        for _ in range(FAILURES_MAX):
            began = time.perf_counter()
            await client.hint(prefix, DEADLINE_S)
            took.append(time.perf_counter() - began)
        await client.close()
    return sorted(took)


def told(name: str, took: list[float]) -> str:
    """One line of figures."""
    return f"  {name:<24} p50 {median(took) * 1e3:6.2f} ms   p99 {took[len(took) * 99 // 100] * 1e3:6.2f} ms"


STRIKES = ("engine", "service", "both", "stop")


def kills(site: Site, count: int, seed: int, strikes: Sequence[str] = STRIKES) -> list[str]:
    """So many of the strikes; what was refused."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    with Load(site.caller) as load:
        load.run(20)
        for _ in range(count):
            how = chance.choice(strikes)
            strike(site, how, load, chance)
            done[how] += 1
    print(f"{len(load.answered)} answered, {len(load.refused)} refused, over {dict(done)}", flush=True)
    return load.refused


def waits(site: Site) -> list[str]:
    """The times; what is too long."""
    found: list[str] = []
    normal = singles(site.caller)
    print(told("service well", normal))
    states: tuple[tuple[str, Callable[[Beside], None]], ...] = (
        ("service stopped", Beside.pause),
        ("dead", Beside.kill),
    )
    for name, act in states:
        act(site.service)
        took = singles(site.caller)
        print(told(name, took), flush=True)
        if median(took) - median(normal) > DEADLINE_S:
            found.append(f"with the service {name} the median call takes {median(took) - median(normal):.4f} s longer")
        if name == "service stopped":
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                asked = runner.run(lookups(site.address))
            print(told("lookup of a stopped one", asked), flush=True)
            if median(asked) > DEADLINE_S + SLACK_S:
                found.append(f"a lookup takes {median(asked):.4f} s")
            site.service.go_on()
    return found


def main() -> int:
    """See the module."""
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=40)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--folder", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        folder = chosen.folder or Path(made)
        site = Site(folder, stack)
        problems = kills(site, chosen.count, chosen.seed)[:5] + waits(site)
        loose = site.plane.folder.loose_ends()
    problems += [str(one) for one in loose]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
