"""A plane to be killed at any moment of its life, its start and its end included.

1. `begin` starts it and returns at once; `listen` waits for its first line. Between the two it may be killed.
2. It is forked off (`tests.harness.forked`), or, `afresh`, the command is started as an operator would.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from typing import Any

from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.plane import ROOT, RUNNING, START_S, STOP_S, NotServing, Plane


class KillablePlane(Plane):
    """See `Plane`; its process is begun, listened to, and ended one step at a time."""

    def __init__(self, folder: DataFolder, forks: Forks, *, fault: str | None = None, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self._forks, self._fault = forks, fault
        self._pid = 0
        self._output = -1
        self._afresh: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._pid
        return self._pid

    @property
    def running(self) -> bool:
        """Whether it has been begun and not been ended."""
        return bool(self._pid)

    def start(self) -> None:
        """Begin, and listen."""
        self.begin()
        self.listen()

    def begin(self, *, afresh: bool = False) -> None:
        """Start the process, without waiting for anything."""
        assert not self._pid
        self._output, output = os.pipe()
        errors = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            if afresh and self._fault is None:
                self._afresh = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=self._environment,
                    cwd=ROOT,
                )
                self._pid = self._afresh.pid
            else:
                self._pid = self._forks.start(self._environment, self._fault, output, errors)
        finally:
            os.close(output)
            os.close(errors)
        RUNNING.append(self)

    def listen(self) -> None:
        """Wait until it takes requests. Raises NotServing."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._output], [], [], START_S)
            piece = os.read(self._output, 4_096) if ready else b""
            if not piece:
                self.kill()
                raise NotServing(self.errors())
            line += piece
        self.base_url = json.loads(line)["base_url"]

    def send(self, what: signal.Signals) -> None:
        """Send it a signal, and wait for nothing."""
        os.kill(self.pid, what)

    def _end(self, how: signal.Signals) -> int:
        if not self._pid:
            return 0
        self.send(how)
        return self.reap()

    def reap(self) -> int:
        """Wait until it has ended, by whatever it was sent; its exit status."""
        pid, self._pid = self._pid, 0
        RUNNING.remove(self)
        os.close(self._output)
        if self._afresh is None:
            return self._forks.wait(pid)
        process, self._afresh = self._afresh, None
        return process.wait(STOP_S)
