"""A plane that gets ten times what it can serve: who is served, how fast, and what everything else costs meanwhile.

    make bench-overload                                    three runs, some three minutes
    make bench-overload ARGS="--write docs/benchmarks.md"  and writes the section of the page

1. The plane is the product's own, on a processor of its own; mock, generator and this process share the other one. What
   it can serve is set, not found: `RUNNING_MAX` places and a model that takes `MODEL_MS`, so that ten times as much can
   be sent from half of this machine. Every control is on, as in `make bench`.
2. Three tenants stay within their shares all the time; a fourth floods. The second run has the same requests at the
   same instants, and one line for everybody instead of the door (`bench.fifo_plane`).
3. An answer is good with status 200 and before its deadline; goodput is good answers a second. The peak is the best of
   the phases `full` and `more than full`.
4. Afterwards the plane is stopped, and its money and evidence are counted.
5. A third run is the plane as it is, with `RIVALS` other processes on its processor that never sleep, so that the
   scheduler leaves it a quarter. It is judged by what it can serve there.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from bench.cases import PLAIN
from bench.machine import machine
from bench.open_loop import LOST, Phase, Sent, Spec
from bench.overload_report import BEGIN, END, STARVED, Bounds, Figures, section, table
from bench.plane import bundle_source, command, plane
from bench.process_cost import busy_s, cost
from bench.processes import HOST, Server, first_json_line, get, running
from bench.report import replace_measured

RUNNING_MAX, MODEL_MS = 64, 250
CAPACITY = RUNNING_MAX * 1000 / MODEL_MS
DEADLINE_MS = 2_000
SETTINGS = {
    "running_max": RUNNING_MAX,
    "waiting_max": 4 * RUNNING_MAX,
    "tenant_max": 2 * RUNNING_MAX,
    "connections_max": 16_384,
    "connections_per_address_max": 16_384,
}
STEADY = ("starter", "alpha", "beta")
FLOOD = "flood"
SHARE = CAPACITY / 4
STEADY_RATE = 0.6 * SHARE
TIMES = 10
PROBE_EVERY_S = 0.02
RIVALS = 3
"""Each in a session of its own: where the scheduler groups by session, it shares by session."""
_TERRAFLOW = str(Path(sys.executable).with_name("terraflow"))


def phases(seconds: float) -> tuple[Phase, ...]:
    """What is sent; the flood takes what its phase has above the steady tenants."""
    steady = dict.fromkeys(STEADY, STEADY_RATE)

    def at(name: str, times: float, share: float) -> Phase:
        return Phase(name, share * seconds, steady | {FLOOD: max(0.0, times * CAPACITY - sum(steady.values()))})

    return (
        at("warm-up", 0, 0.3),
        at("alone", 0, 1.0),
        at("full", 1.0, 0.7),
        at("more than full", 1.5, 0.7),
        at("ten times", TIMES, 1.5),
        at("after", 0, 0.8),
    )


def overload_source(upstream_url: str) -> str:
    """The bundle of `make bench` with four tenants and a model that takes its time, and without the models of its
    streams, which answer at once and would be the way around."""
    document = json.loads(bundle_source(upstream_url))
    slow = [capability for capability in document["capabilities"] if capability["model"] == "mock"]
    document["capabilities"] = slow
    document["contracts"][0]["capabilities"] = [capability["id"] for capability in slow]
    for capability in slow:
        capability["model"] = f"mock-latency-{MODEL_MS}"
    document["contracts"][0]["deadline_ms"] = DEADLINE_MS
    first = {name: document[name][:] for name in ("tenants", "applications", "workloads", "contracts", "budgets")}
    for tenant in (*STEADY[1:], FLOOD):
        for name, entries in first.items():
            document[name] += [json.loads(_renamed(json.dumps(entry), name, tenant)) for entry in entries]
    return json.dumps(document)


def _renamed(entry: str, kind: str, tenant: str) -> str:
    """The same entry of another tenant, whose workload, contract and application have names of their own."""
    for old, new in (
        ('"starter"', f'"{tenant}"'),
        ('"starter-app"', f'"{tenant}-app"'),
        ('"bench"', f'"bench-{tenant}"'),
    ):
        entry = entry.replace(old, new)
    return entry


class Probe(threading.Thread):
    """Asks health and readiness again and again, on a connection for each question, and looks at the plane's memory."""

    def __init__(self, server: Server) -> None:
        super().__init__(name="probe")
        self._server = server
        self._over = threading.Event()
        self.slowest_ms = 0.0
        self.questions = 0
        self.failed = 0
        self.rss_mb: list[float] = []

    def run(self) -> None:
        """Until `end`."""
        while not self._over.wait(PROBE_EVERY_S):
            for path in ("/healthz", "/readyz"):
                begun = time.perf_counter()
                try:
                    self.failed += get(self._server.port, path)[0] != 200
                except OSError:
                    self.failed += 1
                self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - begun) * 1000)
                self.questions += 1
            self.rss_mb.append(cost(self._server.pid).rss_bytes / 2**20)

    def end(self) -> None:
        """Stop asking."""
        self._over.set()
        self.join()


def measure(
    program: Sequence[str], upstream_url: str, data: Path, seconds: float, rivals: Sequence[Sequence[str]] = ()
) -> Figures:
    """One plane, from its start to the count of its books; `rivals` are the processes that run beside its load."""
    with plane(upstream_url, data, program=program, settings=SETTINGS, source_of=overload_source) as server:
        headers = {STEADY[0]: server.headers[0]}
        for tenant in (*STEADY[1:], FLOOD):
            named = ("--tenant", tenant, "--application", f"{tenant}-app")
            made = command("key", "create", *named, "--data", data, "--json")
            headers[tenant] = f"authorization: Bearer {json.loads(made)['api_key']}"
        plan = phases(seconds)
        spec = Spec(
            host=HOST, port=server.port, path="/v1/chat/completions", tenants=headers, body=PLAIN.body, phases=plan
        )
        idle_mb, before, busy = cost(server.pid).rss_bytes / 2**20, cost(server.pid).cpu_s, busy_s()
        probe, begun = Probe(server), time.monotonic()
        probe.start()
        try:
            with ExitStack() as beside:
                for number, rival in enumerate(rivals):
                    beside.enter_context(running(rival, data.with_suffix(f".rival{number}"), os.environ))
                sent = _generate(spec)
        finally:
            probe.end()
        wall_s = time.monotonic() - begun
        plane_cpu_s, all_cpu_s = cost(server.pid).cpu_s - before, busy_s() - busy
    books = read_books(data)
    return Figures(
        rows=sent.rows,
        phases=plan,
        deadline_ms=DEADLINE_MS,
        steady=STEADY,
        idle_mb=idle_mb,
        peak_mb=max(probe.rss_mb),
        probe_slowest_ms=probe.slowest_ms,
        probe_failed=probe.failed,
        probe_questions=probe.questions,
        connections=sent.connections,
        generator_late_mean_ms=sent.late_mean_ms,
        generator_cpu=sent.own_cpu_s / wall_s,
        plane_cpu=plane_cpu_s / wall_s,
        all_cpu=all_cpu_s / wall_s,
        reserved=books["reserved"],
        posted=books["posted"],
        evidence=books["evidence"],
        unended=books["unended"],
        recorded=books["recorded"],
        heard=dict(Counter(row.status for row in sent.rows if row.governed)),
        lost=sum(row.status == LOST for row in sent.rows),
        bounds=STARVED if rivals else Bounds(),
    )


def _generate(spec: Spec) -> Sent:
    with tempfile.TemporaryFile() as told:
        done = subprocess.run(
            [sys.executable, "-m", "bench.open_loop"],
            input=msgspec.json.encode(spec),
            stdout=told,
            stderr=subprocess.PIPE,
            check=False,
        )
        told.seek(0)
        sent = told.read()
    if done.returncode or not sent:
        raise SystemExit(f"the generator ended with {done.returncode}: {done.stderr.decode()[-2_000:]}")
    return msgspec.json.decode(sent, type=Sent)


def read_books(data: Path) -> dict[str, Any]:
    """What is reserved and posted on the tenants' months, what the evidence of the whole log comes to, which requests
    have no outcome, and how many outcomes there are of each status."""
    with closing(sqlite3.connect(f"file:{data / 'terraflow.db'}?mode=ro", uri=True)) as database:
        reserved, posted = 0, 0
        for level, window, held, paid in database.execute("SELECT level, window, reserved, posted FROM counter"):
            reserved += held
            posted += paid if (level, window) == ("tenant", "month") else 0
        outcomes = [json.loads(raw) for (raw,) in database.execute("SELECT data FROM leaf WHERE kind = 'outcome'")]
        unended = database.execute("SELECT count(*) FROM open_request").fetchone()[0]
    return {
        "reserved": reserved,
        "posted": posted,
        "evidence": sum(outcome.get("cost_micro_usd", 0) for outcome in outcomes),
        "unended": unended,
        "recorded": dict(Counter(outcome["status"] for outcome in outcomes)),
    }


def pinned() -> list[str]:
    """This process and its children leave the first processor to the plane, where there are two; how the plane is
    started there."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        return []
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(others))
    return ["taskset", "-c", str(first)]


def main() -> int:
    """The command; 1 if a figure is missed that a plane with a processor of its own is to reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long the phase `alone` takes; others go with it"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page, between its marks")
    parser.add_argument("--only", choices=["door", "starved", "fifo"], help="one of the three runs")
    asked = parser.parse_args()
    on_first, measured = pinned(), dict[str, Figures]()
    programs = {
        "door": [_TERRAFLOW],
        "starved": [_TERRAFLOW],
        "fifo": [sys.executable, "-m", "bench.fifo_plane"],
    }
    rival = [*on_first, sys.executable, "-c", "while True: pass"]
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        facts = machine(folder)
        mock = [sys.executable, "-m", "bench.mock_upstream"]
        log = folder / "mock.log"
        with running(mock, log, os.environ) as process:
            url = f"http://{HOST}:{first_json_line(process, log, 10.0)['port']}/v1"
            for which, program in programs.items():
                if asked.only in (None, which):
                    rivals = [rival] * RIVALS if which == "starved" else ()
                    measured[which] = measure([*on_first, *program], url, folder / which, asked.seconds, rivals)
                    print(table(which, measured[which]), flush=True)
    if asked.write is not None:
        page = section(facts, measured)
        asked.write.write_text(replace_measured(asked.write.read_text(), page, BEGIN, END))
    return int("door" in measured and not all(figure.reached for figure in measured["door"].figures()))


if __name__ == "__main__":
    sys.exit(main())
