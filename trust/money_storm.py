"""Limits at every level, met by eight processes of callers at once: not a micro-dollar over any of them.

    python -m trust.money_storm [--count 100000] [--processes 8] [--tasks 64] [--streams 1000] [--planted FAULT]

One plane, two tenants; a limit for one request, and limits an hour and a month for workloads, business units and
tenants, all small enough to be exhausted. Judged by the evidence alone: each log is replayed leaf by leaf, and at no
leaf may what is set aside and posted exceed a limit; at the end nothing is set aside, the counters are what the
outcomes cost, and so are the costs that the callers were told. Each kind of limit must have been met.

Then streams are left midway, of a model that falls silent: each is charged what was used, the model's own figure where
it gave one and our count where not, and the model's connection is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from terraflow.core.reasons import Governed
from tests.harness import bundle
from tests.harness.bundle import limit, purpose, remote, sim
from tests.harness.counting import PIECE
from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.halting import Halting
from tests.harness.killable import KillablePlane
from tests.harness.line import Line
from tests.harness.plane import ROOT
from tests.harness.replayed import Limits, Replay, replay
from tests.harness.storm_caller import LONG_ANSWER, Heard, Spec
from tests.harness.upstreams import COST
from tests.storage.durability import Acknowledged, problems

EXPECTED_COST = 115
"""About what a request costs, micro-dollars; limits are shares of what a purpose would come to without them."""
PURPOSES = (
    ("acme", "first", "a"),
    ("acme", "first", "b"),
    ("acme", "second", "c"),
    ("acme", "second", "d"),
    ("acme", "third", "e"),
    ("umbra", "main", "f"),
)
# fmt: off
SHARES = (
    ("acme",  "workload",      "a",      "hour",  0.20),
    ("acme",  "workload",      "d",      "month", 0.25),
    ("acme",  "business_unit", "first",  "hour",  0.50),
    ("acme",  "business_unit", "second", "month", 0.65),
    ("acme",  "tenant",        "acme",   "month", 1.60),
    ("umbra", "tenant",        "umbra",  "hour",  0.40),
)
# fmt: on
REQUEST_LIMIT = 2 * LONG_ANSWER
EXPECTED = {f"{Governed.BUDGET_EXHAUSTED} {level}_{window}" for _, level, _, window, _ in SHARES} | {
    Governed.PERMITTED,
    Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT,
}
AT_ONCE = 32
CLOSED_S = 2.0
PIECES_MAX = 9


class Stormed(NamedTuple):
    """What a storm came to: how often which code was answered, the replay of its logs, every problem."""

    codes: dict[str, int]
    replay: Replay
    limits: Limits
    problems: list[str]


def _limits(count: int) -> Limits:
    each = count * EXPECTED_COST // len(PURPOSES)
    return {(tenant, level, of, window): int(each * share) for tenant, level, of, window, share in SHARES}


def _document(limits: Limits) -> dict[str, Any]:
    model, dear = sim("one"), f"{REQUEST_LIMIT / 1e6:.6f}"
    purposes = [
        purpose(name, model, tenant=tenant, unit=unit, request_limit_usd=dear) for tenant, unit, name in PURPOSES
    ]
    budgets = [
        limit(level, of, window, f"{micro / 1e6:.6f}", tenant) for (tenant, level, of, window), micro in limits.items()
    ]
    return bundle.document(*purposes, budgets=budgets)


async def storm(
    folder: Path, count: int, *, processes: int = 8, tasks: int = 64, fault: str | None = None, forks: Forks
) -> Stormed:
    """One storm on a new folder."""
    limits = _limits(count)
    data = DataFolder(folder)
    data.activate(_document(limits))
    keys = {tenant: data.issue_key(tenant) for tenant in ("acme", "umbra")}
    crowd = processes * tasks
    room = {"running_max": crowd, "waiting_max": crowd, "tenant_max": 2 * crowd}
    plane = KillablePlane(data, forks, fault=fault, access_log=False, **room)
    plane.start()
    try:
        port = urlsplit(plane.base_url).port or 0
        purposes = [(tenant, name) for tenant, _, name in PURPOSES]
        specs = [Spec(port, keys, purposes, tasks, count // processes, seed) for seed in range(processes)]
        heard = await asyncio.gather(*map(_callers, specs))
    finally:
        status = plane.stop()
    codes, costs = _sum(one.codes for one in heard), _sum(one.costs for one in heard)
    replayed = replay(folder, limits)
    found = [*replayed.problems, *problems(folder, Acknowledged())]
    if costs != replayed.costs:
        found.append(f"callers were told {costs}, recorded is {replayed.costs}")
    if status != 0 or sum(codes.values()) != replayed.requests:
        found.append(f"{sum(codes.values())} answers, {replayed.requests} recorded, it ended with {status}")
    found += [f"{code} was answered" for code in codes.keys() - EXPECTED]
    found += [f"nobody met {code}: this storm shows nothing of it" for code in EXPECTED - codes.keys()]
    return Stormed(codes, replayed, limits, found)


async def _callers(spec: Spec) -> Heard:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.harness.storm_caller", cwd=ROOT, stdin=-1, stdout=-1
    )
    try:
        output, _ = await process.communicate(msgspec.json.encode(spec))
    except BaseException:
        process.kill()
        raise
    return msgspec.json.decode(output, type=Heard)


def _sum(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            total[name] = total.get(name, 0) + number
    return total


class Left(NamedTuple):
    """One stream that was left: the ask, its body's bytes, the pieces that were said, whether usage was told."""

    word: str
    size: int
    pieces: int
    told: bool
    request_id: str
    left_at: float


class LeftStreams(NamedTuple):
    """What leaving streams came to: seconds until the model's connection was closed, sorted; every problem."""

    seconds: list[float]
    problems: list[str]


async def leave_streams(folder: Path, count: int, *, forks: Forks) -> LeftStreams:
    """Leave so many streams on a new folder."""
    model = await Halting().start()
    data = DataFolder(folder)
    data.activate(bundle.document(purpose("plain", remote("model", model.port))))
    key = data.issue_key()
    plane = KillablePlane(data, forks, access_log=False)
    plane.start()
    left: list[Left] = []
    try:
        port, numbers = urlsplit(plane.base_url).port or 0, iter(range(count))

        async def leaver() -> None:
            left.extend([await _leave(port, key, number) for number in numbers])

        await asyncio.gather(*(leaver() for _ in range(AT_ONCE)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSED_S):
                await model.closed(count)
    finally:
        plane.stop()
        await model.stop()
    found = data.loose_ends()
    outcomes = {
        row[0]: json.loads(row[1]) for row in data.rows("SELECT request_id, data FROM leaf WHERE kind = 'outcome'")
    }
    found += [problem for stream in left for problem in _charged(stream, outcomes)]
    found += [f"{s.word}: the model's connection stayed open" for s in left if s.word not in model.closed_at]
    return LeftStreams(sorted(model.closed_at.get(s.word, s.left_at) - s.left_at for s in left), found)


async def _leave(port: int, key: str, number: int) -> Left:
    pieces, told = 1 + number % PIECES_MAX, number % 2 == 1
    word = f"halted:{number}-{pieces}-{int(told)}"
    body = json.dumps({"messages": [{"role": "user", "content": f"ask {word}"}], "stream": True}).encode()
    line = Line(port)
    await line.send(body, [f"Authorization: Bearer {key}"])
    _, headers = await line.head()
    heard = b""
    while heard.count(PIECE.encode()) < pieces:
        heard += await line.piece()
    line.close()
    return Left(word, len(body), pieces, told, headers["x-terraflow-request-id"], time.monotonic())


def _charged(left: Left, outcomes: dict[str, Any]) -> list[str]:
    """A priced token is one micro-dollar of input and two of output; we count four bytes a token."""
    outcome = outcomes.get(left.request_id)
    if outcome is None:
        return [f"{left.word} has no outcome"]
    counted = -(-left.size // 4) + 2 * -(-left.pieces * len(PIECE) // 4)
    expected = (Governed.CANCELLED, COST if left.told else counted, not left.told)
    said = (outcome["reason_code"], outcome["cost_micro_usd"], outcome["attempts"][0].get("estimated", False))
    return [] if said == expected else [f"{left.word} is recorded as {said}, expected is {expected}"]


def _report(stormed: Stormed) -> None:
    for code, times in sorted(stormed.codes.items()):
        print(f"  {times:7} {code}")
    for (tenant, level, of, key), highest in sorted(stormed.replay.highest.items()):
        most = stormed.limits.get((tenant, level, of, "hour" if "T" in key else "month"))
        if most is not None:
            print(f"  {tenant} {level} {of} {key}: at most {highest} of {most} micro-dollars")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="requests of the storm")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=64, help="callers of each process")
    parser.add_argument("--streams", type=int, default=1_000, help="streams to leave midway")
    parser.add_argument("--planted", default=None, help="a fault that the storm's judge must catch")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, Forks() as forks:
        began = time.monotonic()
        print(f"{options.count} requests of {options.processes} processes x {options.tasks} tasks …", flush=True)
        sizes = {"processes": options.processes, "tasks": options.tasks}
        stormed = asyncio.run(storm(Path(folder) / "storm", options.count, fault=options.planted, forks=forks, **sizes))
        _report(stormed)
        print("\n".join(stormed.problems[:10]))
        print(f"storm: {time.monotonic() - began:.0f} s, {len(stormed.problems)} problems", flush=True)
        if options.planted is not None:
            return 0 if stormed.problems else 1
        began = time.monotonic()
        left = asyncio.run(leave_streams(Path(folder) / "streams", options.streams, forks=forks))
        print("\n".join(left.problems[:10]))
        p50, longest = left.seconds[len(left.seconds) // 2] * 1000, left.seconds[-1] * 1000
        print(
            f"{options.streams} streams left midway in {time.monotonic() - began:.0f} s, {len(left.problems)} problems;"
            f" the model's connection was closed after {p50:.0f} ms (median), {longest:.0f} ms (longest)"
        )
    return 1 if stormed.problems or left.problems else 0


if __name__ == "__main__":
    sys.exit(main())
