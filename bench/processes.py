"""Starting the bench's processes and being sure that they end.

1. Every process is started in a group of its own and ended with its group: asked first, killed after `END_S`.
2. What a process prints as its first JSON line says where it listens; nothing waits longer than its bound.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

END_S = 10.0
HOST = "127.0.0.1"


class NotStarted(Exception):
    """A process of the bench did not come up; the text says which and shows the end of its log."""


@dataclass(frozen=True)
class Server:
    """Something that answers chat completions. `said` is its first JSON line."""

    name: str
    base_url: str
    pid: int
    headers: tuple[str, ...] = ()
    started_s: float = 0.0
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.base_url.split(":")[2].split("/")[0])


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str], *, keep_output: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block. Its standard error goes to `log`; so does its standard output unless
    it is kept to be read (a pipe that nobody reads would fill and stop the process)."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if keep_output else errors,
            stderr=errors,
            env=dict(env),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for what in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, what)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def first_json_line(process: subprocess.Popen[bytes], log: Path, within_s: float) -> dict[str, Any]:
    """What a process says when it is up. Raises NotStarted."""
    output: IO[bytes] | None = process.stdout
    assert output is not None
    deadline, text = time.monotonic() + within_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while b"\n" not in text:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise NotStarted(f"nothing said within {within_s} s\n{tail(log)}")
            piece = os.read(output.fileno(), 65_536)
            if not piece:
                raise NotStarted(f"ended with {process.wait(END_S)}\n{tail(log)}")
            text += piece
    said: dict[str, Any] = json.loads(text.split(b"\n", 1)[0])
    return said


def tail(log: Path) -> str:
    """The end of a log, for a message."""
    return log.read_text(errors="replace")[-2_000:]


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def wait_ready(port: int, path: str, process: subprocess.Popen[bytes], log: Path, within_s: float) -> None:
    """Return when `path` answers 200. Raises NotStarted."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotStarted(f"ended with {process.returncode}\n{tail(log)}")
        try:
            if get(port, path)[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)
    raise NotStarted(f"not ready within {within_s} s\n{tail(log)}")


def get(port: int, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Status and body of one GET."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def post(server: Server, body: str, path: str = "/chat/completions") -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower-case names) and body of one request; `path` stands behind `/v1`."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    try:
        headers = {"content-type": "application/json"}
        for header in server.headers:
            name, _, value = header.partition(": ")
            headers[name] = value
        connection.request("POST", f"/v1{path}", body=body.encode(), headers=headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()
