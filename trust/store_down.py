"""A store that fails: no request reaches a model, and each is refused with 503 within 300 ms.

    python -m trust.store_down [--count 300]

Each way of failing is met by one caller at a time and by 16 at once, with and without an idempotency key, whole and
streamed: a store whose every write is refused; the database's write lock held by another process for as long as it
lasts; a disk that takes no more bytes (a limit on the running process's files, so that its writes really fail). Where
the failure passes, the same plane serves again, and nothing is left open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from terraflow.core.reasons import Governed
from terraflow.storage.sqlite.folder import DATABASE
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.counting import Counting
from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.killable import KillablePlane
from tests.harness.line import Line

ANSWER_S = 0.3
AT_ONCE = (1, 16)
SERVES_AGAIN_S = 5.0


@contextmanager
def refused(_: KillablePlane) -> Iterator[None]:
    """The plane itself has the fault."""
    yield


@contextmanager
def locked(plane: KillablePlane) -> Iterator[None]:
    """Another process writes, and does not come to an end."""
    with contextlib.closing(sqlite3.connect(plane.folder.path / DATABASE, timeout=5, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(plane: KillablePlane) -> Iterator[None]:
    """No write to any file succeeds."""
    before = resource.prlimit(plane.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(plane.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.prlimit(plane.pid, resource.RLIMIT_FSIZE, before)


class Way(NamedTuple):
    """A way of failing; `fault` is in the plane from its start."""

    name: str
    failing: Callable[[KillablePlane], AbstractContextManager[None]]
    fault: str | None = None


WAYS = (Way("writes refused", refused, "writes_refused"), Way("write lock held", locked), Way("disk full", full))


class Tried(NamedTuple):
    """How one way went: seconds of every reply, and every problem."""

    way: str
    seconds: list[float]
    problems: list[str]


class _Callers:
    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._serial = 0
        self.seconds: list[float] = []
        self.problems: list[str] = []

    async def ask(self, number: int, at_once: int) -> None:
        """Ask so often, so many at a time."""
        await asyncio.gather(*(self._some(number // at_once) for _ in range(at_once)))

    async def _some(self, number: int) -> None:
        line = Line(self._port)
        try:
            for _ in range(number):
                began = time.monotonic()
                status, code = await self.one(line)
                self.seconds.append(time.monotonic() - began)
                if (status, code) != (503, Governed.EVIDENCE_UNAVAILABLE):
                    self.problems.append(f"answered {status} {code}")
        finally:
            line.close()

    async def one(self, line: Line) -> tuple[int, str | None]:
        """One request: every second with a key, every third streamed."""
        self._serial += 1
        lines = [f"Authorization: Bearer {self._key}"]
        if self._serial % 2:
            lines.append(f"Idempotency-Key: key-{self._serial}")
        fields = {"messages": [{"role": "user", "content": f"ask plain:{self._serial}"}]}
        if self._serial % 3 == 0:
            fields["stream"] = True  # type: ignore[assignment]
        read = await line.ask(json.dumps(fields).encode(), lines)
        # Where not even the caller's key can be read, the request is not governed, and its code is in the body alone.
        code = None if read.status == 200 else json.loads(read.body)["error"]["code"]
        return read.status, code


async def try_way(way: Way, folder: Path, forks: Forks, count: int, answer_s: float = ANSWER_S) -> Tried:
    """Start a plane, let its store fail, ask `count` times, and see it serve again where the failure passes."""
    upstream = await Counting().start()
    data = DataFolder(folder)
    data.activate(bundle.document(purpose("plain", remote("model", upstream.port))))
    plane = KillablePlane(data, forks, fault=way.fault, access_log=False)
    plane.start()
    try:
        callers = _Callers(urlsplit(plane.base_url).port or 0, data.issue_key())
        with way.failing(plane):
            for at_once in AT_ONCE:
                await callers.ask(count // len(AT_ONCE), at_once)
            problems = callers.problems
            if upstream.calls:
                problems.append(f"{len(upstream.calls)} requests reached a model")
        slow = [seconds for seconds in callers.seconds if seconds > answer_s]
        if slow:
            problems.append(f"{len(slow)} of {len(callers.seconds)} replies took longer than {answer_s} s")
        if way.fault is None:
            problems += await _serves_again(callers, data, plane)
    finally:
        plane.stop()
        await upstream.stop()
    problems += data.loose_ends()
    return Tried(way.name, sorted(callers.seconds), problems)


async def _serves_again(callers: _Callers, data: DataFolder, plane: KillablePlane) -> list[str]:
    ends = time.monotonic() + SERVES_AGAIN_S
    line = Line(urlsplit(plane.base_url).port or 0)
    try:
        while (await callers.one(line))[0] != 200:
            if time.monotonic() > ends:
                return [f"it does not serve again within {SERVES_AGAIN_S} s"]
            await asyncio.sleep(0.05)
    finally:
        line.close()
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="requests for each way of failing")
    options = parser.parse_args(arguments)
    found = 0
    with tempfile.TemporaryDirectory() as folder, Forks() as forks:
        for number, way in enumerate(WAYS):
            tried = asyncio.run(try_way(way, Path(folder) / f"data-{number}", forks, options.count))
            at = tried.seconds
            median, worst = at[len(at) // 2] * 1000, at[-1] * 1000
            print(
                f"{tried.way}: {len(at)} requests, 503 after {median:.1f} ms (median), {worst:.0f} ms (worst)",
                flush=True,
            )
            print("".join(f"  {problem}\n" for problem in sorted(set(tried.problems))[:10]), end="")
            found += len(tried.problems)
    print(f"0 requests may reach a model, and none may wait longer than {ANSWER_S} s: {found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
