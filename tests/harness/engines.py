"""Child processes beside a plane: simulated engines and hint services, to be killed and stopped, and to come back on
their ports."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness.bundle import Json, sim
from tests.harness.ports import kept_port

START_S = 30.0
FAST = ("--speed", "200", "--output-tokens", "8")
"""Answers within milliseconds."""


class Beside:
    """A command of `terraflow` that says where it serves in its first line, as JSON."""

    def __init__(self, log: Path, *arguments: str, **settings: object) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TERRAFLOW_")}
        environment |= {f"TERRAFLOW_{key.upper()}": str(value) for key, value in settings.items()}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("terraflow"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self._log = log
        self.said: dict[str, Any] = {}

    def wait(self) -> None:
        """Until it serves."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.__exit__()
            raise AssertionError(self._log.read_text())
        self.said = json.loads(line)

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Let it hang: it keeps its connections and does nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The end of a pause."""
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            self.go_on()
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def engines(folder: Path, count: int = 3, *options: str) -> Iterator[list[Beside]]:
    """So many simulated engines."""
    with ExitStack() as stack:
        named = [folder / f"engine-{at}.stderr" for at in range(count)]
        started = [
            stack.enter_context(Beside(log, "hints", "sim-engine", *(options or FAST), "--port", str(kept_port())))
            for log in named
        ]
        for engine in started:
            engine.wait()
        yield started


def hint_service(folder: Path, port: int | None = None) -> Beside:
    """A hint service of its own, which takes reports of anybody; `said["grpc"]` is its address."""
    started = Beside(
        folder / "hints.stderr",
        *(
            "hints",
            "serve",
            "--port",
            str(port or kept_port()),
            "--data",
            str(folder / "hints"),
            "--insecure-producers",
        ),
        hints_http_port=0,
        hints_internal_port=0,
        hints_minimum_matched_share=0.05,
    )
    started.wait()
    return started


def again(folder: Path, dead: Beside) -> Beside:
    """An engine on the port of one that was killed."""
    port = dead.said["base_url"].removesuffix("/v1").rpartition(":")[2]
    started = Beside(folder / "again.stderr", "hints", "sim-engine", *FAST, "--port", port)
    started.wait()
    return started


def feeds(member: Beside) -> Json:
    """Where an engine tells of its cache and of its load."""
    said = member.said
    metrics = said["base_url"].removesuffix("/v1") + "/metrics"
    return {"events": said["kv_events"][0], "replay": said["kv_replay"][0], "metrics": metrics}


def fleet(name: str, members: list[Beside], *, fed: bool = False, **changes: Any) -> Json:
    """The capability that they are together; `changes` to its fleet. `fed`: their events are read."""
    replicas = [
        {"id": f"engine-{at}", "endpoint": member.said["base_url"]} | (feeds(member) if fed else {})
        for at, member in enumerate(members)
    ]
    return sim(name, provider="fleet", model="sim", dialect="self_hosted", fleet={"replicas": replicas} | changes)
