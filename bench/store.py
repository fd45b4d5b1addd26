"""What the SQLite store costs: `begin` with six counters and `finish` with a settlement, durable each.

    python -m bench.store [--seconds 3] [--callers 1 8 64] [--folder DIR]

Prints, for each number of callers: pairs and durable records a second, the latency of one verb, the CPU of a pair
in all threads of the process, and how long the event loop stood still at the worst.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from terraflow.contracts.workload import BudgetRule
from terraflow.core.budget import Level, Window
from terraflow.core.types import Instant
from terraflow.ports.store import Entry, Reservation, Reserved, Settlement
from terraflow.spend.budgets import budget_lines
from terraflow.storage.sqlite.store import SqliteStore, open_store

INTENT_BYTES = 1_200
OUTCOME_BYTES = 600
LIMIT = 10**15


class WallClock:
    """The real time."""

    def now(self) -> Instant:
        """Microseconds since the epoch."""
        return Instant(time.time_ns() // 1_000)

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


async def _caller(store: SqliteStore, until: float, waits: list[float]) -> None:
    owners = ((Level.WORKLOAD, "starter"), (Level.BUSINESS_UNIT, "unit"), (Level.TENANT, "acme"))
    counters = [BudgetRule(level, of, window, LIMIT) for level, of in owners for window in Window]
    lines = budget_lines("acme", counters, WallClock().now())
    intent, outcome = b"i" * INTENT_BYTES, b"o" * OUTCOME_BYTES
    while time.perf_counter() < until:
        request_id = "req_" + secrets.token_hex(16)
        reservation_id = request_id + "/1"
        started = time.perf_counter()
        reserved = await store.begin(
            (Entry("acme", "app", request_id, "intent", intent),),
            Reservation(reservation_id, request_id, "acme", "cap", 1_000, True, lines),
        )
        assert isinstance(reserved, Reserved)
        began = time.perf_counter()
        await store.finish((Entry("acme", "app", request_id, "outcome", outcome),), (Settlement(reservation_id, 700),))
        waits += (began - started, time.perf_counter() - began)


async def _stalls(found: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        found.append(time.perf_counter() - before - 0.001)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e6


async def _measure(folder: Path, callers: int, seconds: float) -> str:
    store = open_store(folder, clock=WallClock())
    waits: list[float] = []
    stalls: list[float] = []
    await asyncio.gather(*(_caller(store, time.perf_counter() + 0.3, []) for _ in range(callers)))
    watch = asyncio.create_task(_stalls(stalls))
    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(_caller(store, started + seconds, waits) for _ in range(callers)))
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    watch.cancel()
    await store.close()
    waits.sort()
    stalls.sort()
    verbs = len(waits)
    return (
        f"c={callers:<3} pairs/s={verbs / 2 / wall:8.0f} records/s={verbs / wall:8.0f}"
        f"  verb µs p50={_at(waits, 0.5):6.0f} p99={_at(waits, 0.99):6.0f} max={_at(waits, 1):7.0f}"
        f"  CPU µs/pair={cpu / verbs * 2e6:5.0f}"
        f"  loop stall µs p99={_at(stalls, 0.99):5.0f} max={_at(stalls, 1):6.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    options = parser.parse_args(arguments)
    for callers in options.callers:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(uvloop.run(_measure(Path(folder), callers, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
