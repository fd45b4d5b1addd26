"""One idempotency key, eight times at once: one call of a model, also across a kill and across a restart.

    python -m trust.one_key [--count 200] [--seed 0] [--planted FAULT]

Each round uses a new key, eight connections, and one body, in every second round streamed. In one round of four the
plane is killed while the model works, in another it is stopped in peace; then the eight ask again, on the plane that
was started in its place. Whoever is answered gets the one answer, replayed, or is told that it is not stored; the model
was asked once, and that one call is paid once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from terraflow.core.reasons import Governed
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.counting import PIECE, Counting
from tests.harness.folder import DataFolder
from tests.harness.forked import Forks
from tests.harness.killable import KillablePlane
from tests.harness.line import Line, Read
from tests.harness.upstreams import COST

AT_ONCE = 8
SLOWEST_S = 0.04
PATIENCE_S = 5.0


class Rounds:
    """One plane, its model, and a key after another."""

    def __init__(self, folder: Path, forks: Forks, upstream: Counting, seed: int, fault: str | None) -> None:
        self._upstream = upstream
        self._chance = random.Random(seed)
        self._folder = DataFolder(folder)
        self._folder.activate(bundle.document(purpose("plain", remote("model", upstream.port))))
        self._key = self._folder.issue_key()
        self._plane = KillablePlane(self._folder, forks, fault=fault, access_log=False)
        self.kills = self.calls = 0

    async def run(self, count: int) -> list[str]:
        """Every problem of so many rounds, or of the first that has one."""
        found: list[str] = []
        self._plane.start()
        try:
            for number in range(count):
                found = await self._round(number)
                if found:
                    break
        finally:
            self._plane.stop()
        return found or self._folder.loose_ends()

    async def _round(self, number: int) -> list[str]:
        word = f"keyed:{number}"
        before = self._folder.money()[1]
        streamed = number % 2 == 1
        killed, stopped = number % 4 == 2, number % 4 == 3
        asking = asyncio.ensure_future(self._ask(word, streamed))
        if killed:
            await self._kill_while_it_works(word)
        reads = await asking
        if stopped:
            self._plane.stop()
        await self._upstream.idle() if killed or stopped else None
        if killed or stopped:
            self._plane.start()
            reads += await self._ask(word, streamed)
        calls, _ = self._upstream.forget(word)
        self.calls += calls
        paid = self._folder.money()[1] - before
        found = [problem for read in reads if read is not None for problem in _answer(read, crashed=killed)]
        fresh = sum(read is not None and _code(read) in (None, Governed.PERMITTED) for read in reads)
        if calls != 1 or fresh > 1 or (paid != COST if not killed else paid < COST):
            found.append(f"round {number}: {calls} calls, {fresh} answers that are no replay, {paid} micro-dollars")
        return found

    async def _kill_while_it_works(self, word: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._upstream.reached(word)
        await asyncio.sleep(self._chance.random() * SLOWEST_S)
        self._plane.send(signal.SIGKILL)
        self._plane.reap()
        self.kills += 1

    async def _ask(self, word: str, streamed: bool) -> list[Read | None]:
        port = urlsplit(self._plane.base_url).port or 0
        fields = {"messages": [{"role": "user", "content": f"ask {word}"}]} | ({"stream": True} if streamed else {})
        body = json.dumps(fields).encode()
        return await asyncio.gather(*(self._one(port, body, word) for _ in range(AT_ONCE)))

    async def _one(self, port: int, body: bytes, word: str) -> Read | None:
        """The answer, None when the plane was killed before it was whole."""
        line = Line(port)
        try:
            return await line.ask(body, [f"Authorization: Bearer {self._key}", f"Idempotency-Key: key of {word}"])
        except (OSError, EOFError):
            return None
        finally:
            line.close()


def _code(read: Read) -> str | None:
    return read.headers.get("x-terraflow-reason")


def _answer(read: Read, *, crashed: bool) -> list[str]:
    code, said = _code(read), PIECE.encode().strip() in read.body
    if read.status == 200 and said and code in (None, Governed.PERMITTED, Governed.IDEMPOTENCY_REPLAY):
        return []
    if crashed and code == Governed.IDEMPOTENCY_REPLAY_NO_CONTENT:
        return []
    return [f"answered {read.status} {code}: {read.body[:200]!r}"]


async def rounds(folder: Path, count: int, *, seed: int = 0, fault: str | None = None) -> tuple[Rounds, list[str]]:
    """Run so many rounds on a new folder; what they came to, and every problem."""
    upstream = await Counting(seed, SLOWEST_S).start()
    try:
        with Forks() as forks:
            made = Rounds(folder, forks, upstream, seed, fault)
            return made, await made.run(count)
    finally:
        await upstream.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="keys")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", default=None, help="a fault that must be caught")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made, found = asyncio.run(
            rounds(Path(folder) / "data", options.count, seed=options.seed, fault=options.planted)
        )
    print("\n".join(found[:10]))
    print(
        f"{options.count} keys, {AT_ONCE} times at once each, {made.kills} kills, {made.calls} calls of the model, "
        f"{len(found)} problems, {time.monotonic() - began:.0f} s"
    )
    return 0 if bool(found) is (options.planted is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
