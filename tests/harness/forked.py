"""Planes that start fast, to be killed by the thousand: forked off a process that has imported everything.

1. What the child runs is the command `terraflow serve`; only the interpreter's start and the imports came before it.
2. With the name of a planted fault (`tests.faults.planted`) it runs the same server with that fault in it.
3. The forking process holds no thread, no loop and no file of a plane's; it ends when its owner closes the socket, and
   every plane that still runs ends with it.

    python -m tests.harness.forked      (standard input is a socket; the class below talks to it)
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

from tests.harness.plane import ROOT

_MESSAGE_BYTES_MAX = 65_536
_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


class Forks:
    """The forking process. A context manager; blocking."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.harness.forked"]
            self._process = subprocess.Popen(command, stdin=theirs, cwd=ROOT)
        self._ours.settimeout(30)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ours.close()
        self._process.wait(10)

    def start(self, environment: dict[str, str], fault: str | None, output: int, errors: int) -> int:
        """Fork a plane whose standard output and error are the two descriptors; its process id."""
        message = json.dumps({"environment": environment, "fault": fault}).encode()
        socket.send_fds(self._ours, [message], [output, errors])
        return int(json.loads(self._ours.recv(_MESSAGE_BYTES_MAX))["pid"])

    def wait(self, pid: int) -> int:
        """Wait until a plane has ended, for ever; its exit status, negative when a signal ended it."""
        self._ours.sendall(json.dumps({"wait": pid}).encode())
        return int(json.loads(self._ours.recv(_MESSAGE_BYTES_MAX))["status"])


def _serve(environment: dict[str, str], fault: str | None) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if fault is None:
        from terraflow.cli.main import main

        sys.argv = ["terraflow", "serve"]
        main()
    else:
        from tests.faults.planted import serve_with

        serve_with(fault)


def _child(environment: dict[str, str], fault: str | None, descriptors: list[int]) -> NoReturn:
    status = 1
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        _serve(environment, fault)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _loop() -> None:
    import tests.faults.planted  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = socket.socket(fileno=os.dup(0))
    while True:
        raw, descriptors, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES_MAX, 2)
        if not raw:
            return
        message: dict[str, Any] = json.loads(raw)
        if "wait" in message:
            _, status = os.waitpid(message["wait"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                asked.close()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                _child(message["environment"], message["fault"], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            answer = {"pid": pid}
        asked.sendall(json.dumps(answer).encode())


if __name__ == "__main__":
    _loop()
