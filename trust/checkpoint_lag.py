"""A record is covered by a signed checkpoint within a second of its acknowledgement, under load.

    python -m trust.checkpoint_lag [--count 500] [--callers 16]

The plane runs with its own settings, under callers that ask without a pause. Beside them, a few ask too, and once they
are answered read GET /v1/evidence/{request_id} until the outcome has its inclusion proof: the lag is the time between
the two, and so includes the reading. Proofs are not believed: each is held against the leaf and the log's key by
the offline verifier.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from terraflow.app.keys import read_private_key
from terraflow.evidence.checkpoint import log_key
from terraflow.verifier.formats import LogKey, parse_key
from terraflow.verifier.proof import verify_answer
from tests.harness import bundle
from tests.harness.bundle import TENANT, purpose, sim
from tests.harness.folder import DataFolder
from tests.harness.line import Line, Read
from tests.harness.plane import Plane

LAG_S = 1.0
WATCHERS = 4
READ_EVERY_S = 0.01
GIVEN_UP_S = 10.0


class Watched(NamedTuple):
    """Seconds from acknowledgement to proof, sorted, and how many requests went through in all."""

    lags: list[float]
    asked: int


class _Watch:
    def __init__(self, port: int, api_key: str, key: LogKey) -> None:
        self._port = port
        self._head = [f"Authorization: Bearer {api_key}"]
        self._key = key
        self.asked = 0
        self.lags: list[float] = []

    async def load(self) -> None:
        """Ask without a pause, until cancelled."""
        line = Line(self._port)
        try:
            while True:
                await self._ask(line)
        finally:
            line.close()

    async def watch(self, count: int) -> None:
        """Ask so often, and wait each time until the outcome is proved."""
        line = Line(self._port)
        try:
            for _ in range(count):
                read = await self._ask(line)
                self.lags.append(await self._proved_after(line, read.headers["x-terraflow-request-id"]))
        finally:
            line.close()

    async def _ask(self, line: Line) -> Read:
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()
        read = await line.ask(body, self._head)
        assert read.status == 200, read
        self.asked += 1
        return read

    async def _proved_after(self, line: Line, request_id: str) -> float:
        began = time.monotonic()
        while True:
            read = await line.get(f"/v1/evidence/{request_id}", self._head)
            lag = time.monotonic() - began
            records = json.loads(read.body)["records"]
            if len(records) == 2 and all(record["inclusion_proof"] is not None for record in records):
                verify_answer(read.body, self._key)
                return lag
            assert lag < GIVEN_UP_S, f"no proof of {request_id}"
            await asyncio.sleep(READ_EVERY_S)


async def lags(folder: Path, count: int, callers: int, interval_ms: int = 250) -> Watched:
    """Watch `count` requests under load; the plane signs at its own interval unless another is given."""
    data = DataFolder(folder)
    data.activate(bundle.document(purpose("plain", sim("one"))))
    with Plane(data, access_log=False, checkpoint_interval_ms=interval_ms) as plane:
        key = parse_key(log_key(TENANT, read_private_key(folder / "keys" / "log.pem").public_key()))
        watch = _Watch(urlsplit(plane.base_url).port or 0, data.issue_key(), key)
        load = [asyncio.ensure_future(watch.load()) for _ in range(callers)]
        try:
            await asyncio.gather(*(watch.watch(count // WATCHERS) for _ in range(WATCHERS)))
        finally:
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
    return Watched(sorted(watch.lags), watch.asked)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--callers", type=int, default=16)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        watched = runner.run(lags(Path(folder) / "data", options.count, options.callers))
    seconds = time.monotonic() - began
    found = watched.lags
    p50, p99 = found[len(found) // 2], found[min(len(found) - 1, len(found) * 99 // 100)]
    print(
        f"{len(found)} records among {watched.asked} requests in {seconds:.0f} s: proved after {p50 * 1000:.0f} ms "
        f"(median), {p99 * 1000:.0f} ms (p99), {found[-1] * 1000:.0f} ms (longest)"
    )
    return 0 if p99 <= LAG_S else 1


if __name__ == "__main__":
    sys.exit(main())
