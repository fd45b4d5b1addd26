"""A plane as its operator runs it: a process of its own, on a free port, over a data folder.

1. It is started by the product's command, or, with faults, by `tests.faults.plane`, which differs from it in the ports
   that it wraps.
2. Whoever starts one stops it: a plane is a context manager. What it wrote to standard error is kept in a file, and
   shown by a test that fails while it runs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness.folder import DataFolder

ROOT = Path(__file__).resolve().parents[2]
START_S = 20.0
"""Ten times what a start may take, for a machine that does much else."""
STOP_S = 20.0

RUNNING: list[Plane] = []
"""Every plane of this test session that has not been stopped."""


class NotServing(Exception):
    """The process ended, or said nothing in time; the message holds its standard error."""


class Plane:
    """One plane; `settings` become TERRAFLOW_* variables, `secrets` variables of their own name."""

    def __init__(
        self,
        folder: DataFolder,
        *,
        faults: bool = False,
        secrets: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.base_url = ""
        self._armed = folder.path.with_name(folder.path.name + ".armed")
        self._command = [Path(sys.executable).with_name("terraflow"), "serve"]
        if faults:
            self._command = [sys.executable, "-m", "tests.faults.plane", self._armed]
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("TERRAFLOW_")}
        self._environment |= secrets or {}
        chosen = {"data_dir": folder.path, "bind_port": 0, "checkpoint_interval_ms": 50} | settings
        for key, value in chosen.items():
            self._environment[f"TERRAFLOW_{key.upper()}"] = ",".join(value) if isinstance(value, list) else str(value)
        self.log = folder.path.with_name(folder.path.name + ".stderr")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Plane:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it takes requests. Raises NotServing."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=ROOT,
            )
        RUNNING.append(self)
        self.base_url = json.loads(self._first_line())["base_url"]

    def _first_line(self) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise NotServing(self.errors())
        return line

    def stop(self) -> int:
        """Ask it to end, and wait until it has; its exit status. A second time does nothing."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Let one of the faults of `tests.faults.plane` happen, for so long."""
        beside = self._armed.with_suffix(".next")
        beside.write_text(name)
        beside.rename(self._armed)
        try:
            yield
        finally:
            self._armed.unlink()

    def restart(self) -> None:
        """Stop, and start on the same folder: another port, the same state."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        RUNNING.remove(self)
        process.send_signal(how)
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NotServing(f"it did not end within {STOP_S} s: {self.errors()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
        return status

    def errors(self) -> str:
        """What it has written to standard error, its end."""
        return self.log.read_bytes()[-20_000:].decode("utf-8", "replace")

    def wait_for(self, word: str, within_s: float = 5.0) -> None:
        """Until a word stands in its standard error. Raises NotServing."""
        ends = time.monotonic() + within_s
        while word not in self.errors():
            if time.monotonic() > ends:
                raise NotServing(f"no {word!r} within {within_s} s: {self.errors()}")
            time.sleep(0.01)
