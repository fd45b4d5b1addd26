"""What the index of route hints costs, against its figures: lookups, ingest, events, the cap, pauses, memory, a flood.

Run `python -m bench.hints_index [--quick] [--json FILE]`. Each part has a process and so a memory of its own.

1. Layouts: `spread`, each chain on one of 8 replicas; `all`, every replica holds everything; `pieces`, chains that came
   block by block, a report each. A lookup's hashes are new objects, as from the wire, and its answer is checked.
2. Rates are of CPU time, so that what else the machine does counts for little; lookups are of wall time, their median.
3. `steady` is one thread, as in the service: 200 000 blocks a second and 1 000 lookups a second fall due, each lookup
   is timed from when it was due. First the index grows to the cap and stays there, then a short TTL is swept. Its clock
   is the thread's CPU time, which on a core of its own is wall time: it never sleeps. A pause is one call's time, or
   one garbage collection's.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import number, table
from bench.stats import percentile
from terraflow.hints.index.index import Index
from terraflow.hints.index.runs import COMPILED
from terraflow.hints.index.said import TenantRule
from terraflow.hints.words import Entry, Report, Scope

BLOCKS, REPLICAS, CHAINS = 1_000_000, 8, (8, 64, 512)
LAYOUTS = ("spread", "all", "pieces")
LOOKUPS = 3_000
BLOCKS_PER_S, LOOKUPS_PER_S, REPORT_BLOCKS = 200_000, 1_000, 64
FLOOD_KEYS = 10_000_000
SCOPE = Scope("acme", "llama", "xxh3-64")

LOOKUP_US = {8: 20.0, 64: 25.0, 512: 100.0}
HURT = 3.0
INGEST_PER_S, EVENTS_PER_S = 500_000.0, 100_000.0
STEADY_P99_MS, PAUSE_MS = 5.0, 20.0
BYTES_MAX = 180.0
FLOOD_GROWTH = 1.10


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def chain(dice: random.Random, length: int) -> list[bytes]:
    """New hashes of 8 bytes."""
    return cut(dice.randbytes(8 * length))


def cut(whole: bytes) -> list[bytes]:
    """The hashes of a chain that is kept as one piece of memory."""
    return [whole[i : i + 8] for i in range(0, len(whole), 8)]


def report(replica: int, hashes: list[bytes], tenant: str = SCOPE.tenant, first: int = 0) -> Report:
    """One chain, or its block at place `first`."""
    counts = [16 * (first + i + 1) for i in range(len(hashes))]
    entry = Entry("", hashes, counts, 1)
    return Report(replica=f"r{replica}", model=SCOPE.model, tenant=tenant, scheme=SCOPE.scheme, entries=(entry,))


def reports(layout: str, whole: bytes, at: int) -> Iterator[Report]:
    """What a layout makes of one chain."""
    hashes = cut(whole)
    if layout == "pieces":
        yield from (report(at % REPLICAS, [one], first=i) for i, one in enumerate(hashes))
    else:
        yield from (report(r, hashes) for r in (range(REPLICAS) if layout == "all" else [at % REPLICAS]))


def fill(index: Index, layout: str, chains: Sequence[bytes]) -> float:
    """Ingest chains; returns the CPU seconds that the index took."""
    spent = 0.0
    for at, whole in enumerate(chains):
        told = list(reports(layout, whole, at))
        begun = time.process_time_ns()
        for one in told:
            index.ingest(one, 100.0)
        spent += (time.process_time_ns() - begun) / 1e9
    return spent


def one_layout(layout: str, length: int, blocks: int) -> dict[str, float]:
    """Fill, look up, go over the cap, evict."""
    dice = random.Random(length)
    held_by = REPLICAS if layout == "all" else 1
    chains = [dice.randbytes(8 * length) for _ in range(blocks // held_by // length)]
    entries = len(chains) * length * held_by
    index = Index(entries_max=blocks)
    gc.collect()
    before = rss_bytes()
    filled_s = fill(index, layout, chains)
    found = {"bytes": (rss_bytes() - before) / entries, "ingest_per_s": entries / filled_s}
    counts = [16] * length
    times = []
    for _ in range(LOOKUPS):
        hashes = cut(dice.choice(chains))
        begun = time.perf_counter()
        held = index.chain(SCOPE, "", hashes, counts, 200.0)
        times.append((time.perf_counter() - begun) * 1e6)
        assert len(held) == held_by and all(one.blocks == length and one.tokens == 16 * length for one in held)
    found["lookup_p50_us"], found["lookup_p99_us"] = percentile(times, 50), percentile(times, 99)
    more = [dice.randbytes(8 * length) for _ in range(max(1, blocks // 5 // held_by // length))]
    found["cap_ingest_per_s"] = len(more) * length * held_by / fill(index, layout, more)
    assert index.entries() <= blocks
    found["events_per_s"] = events(index, held_by, more)
    return found


def events(index: Index, held_by: int, chains: Sequence[bytes]) -> float:
    """PREFIX_EVICTED a block, in turn of replicas; a second."""
    gone, done = 0, 0
    begun = time.process_time_ns()
    for at, whole in enumerate(chains):
        for one in cut(whole):
            replica = at % REPLICAS if held_by == 1 else done % REPLICAS
            gone += index.evict(SCOPE.tenant, SCOPE.model, f"r{replica}", one, None, 300.0)
            done += 1
    assert gone == done
    return done / ((time.process_time_ns() - begun) / 1e9)


class Steady:
    """One thread on which reports, lookups and sweeps fall due."""

    def __init__(self, index: Index, *, sweeps: bool) -> None:
        self.index, self.sweeps = index, sweeps
        self.dice = random.Random(7)
        self.recent = [self.dice.randbytes(8 * REPORT_BLOCKS) for _ in range(256)]
        self.late_ms: list[float] = []
        self.pause_ms = 0.0
        self.blocks = 0
        self._collecting = 0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time_ns()
        else:
            self.pause_ms = max(self.pause_ms, (time.thread_time_ns() - self._collecting) / 1e6)

    def _timed(self, begun: int) -> None:
        self.pause_ms = max(self.pause_ms, (time.thread_time_ns() - begun) / 1e6)

    def run(self, seconds: float) -> None:
        """So long."""
        begun = time.thread_time()
        reported = looked = swept = 0
        while (now := time.thread_time() - begun) < seconds:
            if reported < now * BLOCKS_PER_S / REPORT_BLOCKS:
                whole = self.dice.randbytes(8 * REPORT_BLOCKS)
                self.recent[reported % 256] = whole
                told = report(reported % REPLICAS, cut(whole))
                timer = time.thread_time_ns()
                self.index.ingest(told, now)
                self._timed(timer)
                reported += 1
            if looked < now * LOOKUPS_PER_S:
                hashes = cut(self.dice.choice(self.recent))
                timer = time.thread_time_ns()
                self.index.chain(SCOPE, "", hashes, [16] * len(hashes), now)
                self._timed(timer)
                self.late_ms.append((time.thread_time() - begun - looked / LOOKUPS_PER_S) * 1000)
                looked += 1
            if self.sweeps and swept < now * 100:
                timer = time.thread_time_ns()
                self.index.sweep(now, 4096)
                self._timed(timer)
                swept += 1
        gc.callbacks.remove(self._collected)
        self.blocks = reported * REPORT_BLOCKS

    def found(self, seconds: float) -> dict[str, float]:
        """The figures."""
        return {
            "blocks_per_s": self.blocks / seconds,
            "lookup_p99_ms": percentile(self.late_ms, 99),
            "lookup_worst_ms": max(self.late_ms),
            "pause_ms": self.pause_ms,
        }


def steady(name: str, seconds: float) -> dict[str, float]:
    """`growth`: to the cap and at it; `sweep`: what comes goes by its TTL of a second."""
    sweeping = name == "sweep"
    index = Index(entries_max=BLOCKS, ttl_s=1.0 if sweeping else 1800.0)
    run = Steady(index, sweeps=sweeping)
    run.run(seconds)
    return {**run.found(seconds), "entries": float(index.entries())}


def flood(quota: bool, keys: int) -> dict[str, float]:
    """Two quiet tenants with quotas, and one that floods, with a quota or without."""
    index = Index(entries_max=BLOCKS)
    dice = random.Random(3)
    quiet = BLOCKS // 10
    for tenant in ("quiet-1", "quiet-2"):
        index.govern(tenant, TenantRule(1800.0, False, quiet))
    if quota:
        index.govern(SCOPE.tenant, TenantRule(1800.0, False, BLOCKS // 2))
    before = rss_bytes()
    for at in range(BLOCKS // 512):
        index.ingest(report(at % REPLICAS, chain(dice, 512)), 1.0)
    for tenant in ("quiet-1", "quiet-2"):
        for at in range(quiet // 100):
            index.ingest(report(at % REPLICAS, chain(dice, 100), tenant), 2.0)
    at_cap = rss_bytes() - before
    for at in range(keys // 512):
        index.ingest(report(at % REPLICAS, chain(dice, 512)), 3.0)
    kept = index.keys("quiet-1") + index.keys("quiet-2")
    return {"quiet_kept": kept / (2 * quiet), "growth": (rss_bytes() - before) / at_cap, "entries": index.entries()}


def part(name: str, *, quick: bool) -> dict[str, Any]:
    """One part by its name, in this process."""
    kind, *rest = name.split(":")
    if kind == "steady":
        return steady(rest[0], 4.0 if quick else 12.0)
    if kind == "flood":
        return flood(rest[0] == "quota", FLOOD_KEYS // 10 if quick else FLOOD_KEYS)
    return one_layout(kind, int(rest[0]), BLOCKS // 5 if quick else BLOCKS)


PARTS = (*(f"{layout}:{length}" for layout in LAYOUTS for length in CHAINS), "steady:growth", "steady:sweep")
FLOODS = ("flood:quota", "flood:none")


def measure(*, quick: bool = False) -> dict[str, dict[str, float]]:
    """Every part, each in a process of its own."""
    found = {}
    for name in (*PARTS, *FLOODS):
        command = [sys.executable, "-m", "bench.hints_index", "--part", name, *(["--quick"] if quick else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        found[name] = json.loads(done.stdout)
        print(f"  index, {name}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return found


Figure = tuple[str, str, float, float, bool]


def figures(found: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    """(what, unit, to reach, measured, whether it is reached), one a line."""

    def most(what: str, unit: str, bound: float, value: float) -> Figure:
        return what, f"≤ {number(bound)} {unit}", bound, value, value <= bound

    def least(what: str, unit: str, bound: float, value: float) -> Figure:
        return what, f"≥ {number(bound)} {unit}", bound, value, value >= bound

    rows = []
    for name in PARTS[:-2]:
        layout, length = name.split(":")
        one, bound = found[name], LOOKUP_US[int(length)] * (1.0 if layout == "spread" else HURT)
        said = f"{layout}, chains of {length}" + (", a report a block" if layout == "pieces" else "")
        rows.append(most(f"lookup, {said}, p50", "µs", bound, one["lookup_p50_us"]))
        needed = float(BLOCKS_PER_S) if layout == "pieces" else INGEST_PER_S
        rows.append(least(f"ingest, {said}", "/s", needed, one["ingest_per_s"]))
        rows.append(least(f"ingest at the cap, {said}", "/s", needed, one["cap_ingest_per_s"]))
        rows.append(least(f"eviction events at the cap, {said}", "/s", EVENTS_PER_S, one["events_per_s"]))
        rows.append(most(f"memory, {said}", "bytes an entry", BYTES_MAX, one["bytes"]))
    for name in ("steady:growth", "steady:sweep"):
        said = f"while ingesting 200 000 blocks/s, {name.split(':')[1]}"
        rows.append(least(f"blocks taken, {said}", "/s", BLOCKS_PER_S * 0.99, found[name]["blocks_per_s"]))
        rows.append(most(f"lookup, {said}, p99", "ms", STEADY_P99_MS, found[name]["lookup_p99_ms"]))
        rows.append(most(f"longest pause, {said}", "ms", PAUSE_MS, found[name]["pause_ms"]))
    kept = found["flood:quota"]["quiet_kept"]
    rows.append(least("other tenants' keys kept in a flood of 10 M, each with its quota", "", 1.0, kept))
    grown = "memory after the flood over the cap's"
    return rows + [most(f"{grown}, {name}", "×", FLOOD_GROWTH, found[name]["growth"]) for name in FLOODS]


def tables(found: Mapping[str, Mapping[str, float]]) -> str:
    """The figures as a Markdown table."""
    rows = [
        [what, bound, number(value), "reached" if reached else "missed"]
        for what, bound, _, value, reached in figures(found)
    ]
    how = "compiled" if COMPILED else "interpreted (no compiler)"
    return table([f"index, {how}", "to reach", "measured", ""], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the blocks, short runs")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.part:
        print(json.dumps(part(asked.part, quick=asked.quick)))
        return 0
    found = measure(quick=asked.quick)
    print(tables(found))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    return 0 if all(reached for *_, reached in figures(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
