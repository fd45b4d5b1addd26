"""`make bench`: the mock, the plane and LiteLLM's proxy under one load, and what was measured against the targets.

1. Mock, server under test and load generator are separate processes on 127.0.0.1; nothing else of ours runs.
2. The mock alone is measured beside the plane, cell by cell, so that both see the same noise; a cell is measured
   `--rounds` times and each of its figures is the median.
3. Nothing is measured that does not first answer as it should: a probe shows each server's answer to each case.
4. What is not there (LiteLLM's environment) is said, and its figures are "not measured".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench import cases, report
from bench.leaving import leaving
from bench.litellm_proxy import installed, litellm
from bench.load import Spec
from bench.machine import machine
from bench.plane import plane, records
from bench.processes import HOST, NotStarted, Server, first_json_line, post, running
from bench.stats import middle
from bench.targets import TARGETS, Results, judge

CONNECTIONS = (1, 16, 64)
STREAM_CONNECTIONS = (1, 16)
SOAK_REQUESTS = 50_000
SOAK_LIMIT_S = 600.0
LEAVING_TRIALS = 20
_LOAD_OVERHEAD_S = 120.0


class Settings(msgspec.Struct, frozen=True):
    """How long and how often."""

    seconds: float
    rounds: int
    warmup_s: float
    soak_requests: int


def measure(server: Server, mock: Server, case: cases.Case, connections: int, **changes: Any) -> dict[str, Any]:
    """One run of the load generator; its result with the server's own figures lifted to the top."""
    spec = Spec(
        **{
            "url": f"{server.base_url}{case.path}",
            "headers": server.headers,
            "body": case.body,
            "connections": connections,
            "expect": case.expect,
            "chunks": case.chunks,
            "processes": {"server": server.pid, "mock": mock.pid},
            **changes,
        }
    )
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(spec),
        capture_output=True,
        timeout=spec.seconds + spec.warmup_s + spec.grace_s * 2 + _LOAD_OVERHEAD_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load generator failed on {server.name}:\n{done.stderr.decode()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    own = result["processes"]["server"]
    return {**result, "cpu_ms": own["cpu_ms_per_request"], "rss_mb": own["rss_end_mb"]}


class Bench:
    """One run: its settings, its mock, and what it has found."""

    def __init__(self, settings: Settings, mock: Server) -> None:
        self.settings = settings
        self.mock = mock
        self.results: Results = {"cells": {}, "servers": {}, "started_s": {}, "leaving": {}}

    def introduce(self, key: str, server: Server) -> None:
        """Name a server in the results."""
        self.results["servers"][key] = server.name
        if server.started_s:
            self.results["started_s"][key] = server.started_s
        say(f"{server.name} is up (pid {server.pid}, {server.started_s:.1f} s)")

    def cell(self, servers: dict[str, Server], case: cases.Case, connections: int) -> None:
        """Measure one case at one width on each server, turn by turn."""
        rounds: dict[str, list[dict[str, Any]]] = {key: [] for key in servers}
        for _ in range(self.settings.rounds):
            for key, server in servers.items():
                times = {"seconds": self.settings.seconds, "warmup_s": self.settings.warmup_s}
                rounds[key].append(measure(server, self.mock, case, connections, **times))
        for key, measured in rounds.items():
            found = middle(measured)
            by_case = self.results["cells"].setdefault(key, {})
            by_case.setdefault(case.name, {})[str(connections)] = found
            say(
                f"  {key:8} {case.name:30} c={connections:<3} {found['rps']:>9.1f}/s  "
                f"p50 {found['p50_ms']:8.3f} ms  CPU {found['cpu_ms']:7.3f} ms  errors {found['errors']}"
            )
            if found["errors"]:
                say(f"           first error: {found['first_error'][:600]!r}")

    def probe(self, server: Server, case: cases.Case) -> None:
        """One request as the load generator will send it; raises when the answer is not the one expected."""
        status, headers, body = post(server, case.body, case.path)
        reason = headers.get("x-terraflow-reason", "none")
        say(f"  {server.name}, {case.name}: {status}, x-terraflow-reason {reason}")
        if status != case.expect:
            raise RuntimeError(f"{server.name} answered {status} to {case.name}: {body[:600]!r}")

    def records(self, server: Server, folder: Path) -> None:
        """How fast the plane's log grew while 64 callers were served, counted in the log itself."""
        before = records(folder)
        ran = measure(server, self.mock, cases.PLAIN, 64, seconds=self.settings.seconds, warmup_s=0.0)
        grown = records(folder) - before
        found = {"connections": 64, "records": grown, "per_s": grown / ran["seconds"]}
        self.results["records"] = {**found, "requests": ran["requests"], "seconds": ran["seconds"]}

    def soak(self, server: Server) -> None:
        """The long run, on a plane that has just started."""
        ran = measure(
            server,
            self.mock,
            cases.PLAIN,
            16,
            seconds=SOAK_LIMIT_S,
            count=self.settings.soak_requests,
            warmup_s=0.0,
            sample_memory_s=0.1,
        )
        memory = ran["memory"]
        self.results["soak"] = {
            **ran,
            "rss_start_mb": memory[0]["server"],
            "rss_peak_mb": max(sample["server"] for sample in memory),
            "rss_end_mb": ran["rss_mb"],
        }


def bench_plane(bench: Bench, folder: Path) -> None:
    """The mock alone and the plane in front of it."""
    upstream = bench.mock.base_url
    with plane(upstream, folder / "plane") as server:
        bench.introduce("plane", server)
        for case in (cases.PLAIN, cases.MESSAGES, cases.INVOCATIONS, cases.REFUSAL, cases.PACED):
            bench.probe(server, case)
        both = {"mock": bench.mock, "plane": server}
        for connections in CONNECTIONS:
            bench.cell(both, cases.PLAIN, connections)
        for case in (cases.MESSAGES, cases.INVOCATIONS, cases.REFUSAL):
            for connections in CONNECTIONS:
                bench.cell({"plane": server}, case, connections)
        bench.records(server, folder / "plane")
        for connections in STREAM_CONNECTIONS:
            bench.cell(both, cases.PACED, connections)
            bench.cell(both, cases.BURST, connections)
        bench.results["leaving"]["plane"] = leaving(server, bench.mock, LEAVING_TRIALS)
    with plane(upstream, folder / "soak") as server:
        say(f"the long run: {bench.settings.soak_requests} requests")
        bench.soak(server)


def bench_mock(bench: Bench) -> None:
    """The mock alone: how much room the harness leaves."""
    for connections in CONNECTIONS:
        bench.cell({"mock": bench.mock}, cases.PLAIN, connections)
    for connections in STREAM_CONNECTIONS:
        bench.cell({"mock": bench.mock}, cases.PACED, connections)
        bench.cell({"mock": bench.mock}, cases.BURST, connections)


def bench_litellm(bench: Bench, folder: Path) -> None:
    """LiteLLM's proxy in front of the same mock."""
    if installed() is None:
        say("LiteLLM is not installed in the bench's environment (`make bench-setup`): not measured")
        return
    with litellm(cases.ROUTED, bench.mock.base_url, folder) as server:
        bench.introduce("litellm", server)
        for case in (cases.PLAIN, cases.PACED):
            bench.probe(server, case)
        for connections in CONNECTIONS:
            bench.cell({"litellm": server}, cases.PLAIN, connections)
        for connections in STREAM_CONNECTIONS:
            bench.cell({"litellm": server}, cases.PACED, connections)
            bench.cell({"litellm": server}, cases.BURST, connections)
        bench.results["leaving"]["litellm"] = leaving(server, bench.mock, 3)


@contextmanager
def mock_upstream(folder: Path) -> Iterator[Server]:
    """The mock for the length of the block."""
    log = folder / "mock.log"
    with running([sys.executable, "-m", "bench.mock_upstream"], log, os.environ) as process:
        said = first_json_line(process, log, within_s=10)
        yield Server("mock", f"http://{HOST}:{said['port']}/v1", process.pid)


def say(text: str) -> None:
    """Progress, on standard error: standard output is the table's."""
    print(text, file=sys.stderr, flush=True)


def run(settings: Settings, parts: frozenset[str], folder: Path) -> Results:
    """All parts asked for, one after the other."""
    facts = machine(folder)
    with mock_upstream(folder) as mock:
        bench = Bench(settings, mock)
        bench.results["machine"] = facts
        bench.results["settings"] = msgspec.to_builtins(settings)
        bench.introduce("mock", mock)
        if "plane" in parts:
            bench_plane(bench, folder)
        elif "mock" in parts:
            bench_mock(bench)
        if "litellm" in parts:
            bench_litellm(bench, folder)
        return bench.results


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure the plane against its figures.")
    parser.add_argument("--quick", action="store_true", help="one short round: for a look, not for the page")
    parser.add_argument("--parts", default="mock,plane,litellm", help="which of mock, plane, litellm")
    parser.add_argument("--json", type=Path, help="also write everything that was measured to this file")
    parser.add_argument("--write", type=Path, help="replace the measured section of this page")
    parser.add_argument("--data", type=Path, help="where the plane's data goes (default: a new folder under build/)")
    return parser.parse_args(arguments)


def main() -> int:
    """The command. Exit 0 when everything asked for was measured, whether or not the figures are reached."""
    asked = parse_arguments(sys.argv[1:])
    settings = Settings(1.0, 1, 0.5, 10_000) if asked.quick else Settings(4.0, 3, 1.0, SOAK_REQUESTS)
    root = asked.data or Path("build")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root) as name:
        try:
            results = run(settings, frozenset(asked.parts.split(",")), Path(name).resolve())
        except NotStarted as error:
            say(f"not started: {error}")
            return 1
    print(report.page(results))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    if asked.write:
        asked.write.write_text(report.replace_measured(asked.write.read_text(), report.page(results)))
    verdicts = [judge(target, results) for target in TARGETS]
    reached = sum(verdict.value is not None and not verdict.missed_by for verdict in verdicts)
    say(f"{reached} of {len(verdicts)} figures reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
