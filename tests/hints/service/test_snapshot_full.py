"""A disk that is full while a snapshot is written: the former one stays, and the trouble is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITES = """
import asyncio, os, resource, sys
from pathlib import Path
from terraflow.app.runtime import SystemClock
from terraflow.hints.index.index import Index
from terraflow.hints.snapshot import restore_snapshot, write_snapshot
from terraflow.hints.words import Entry, Report

path, clock = Path(sys.argv[1]), SystemClock()

def index(blocks):
    made = Index()
    hashes = [os.urandom(8) for _ in range(blocks)]
    entry = Entry("", hashes, [16] * blocks, 1)
    made.ingest(Report(replica="r", model="m", tenant="t", scheme="s", entries=(entry,)), clock.monotonic())
    return made

asyncio.run(write_snapshot(path, index(10), clock, {}))
resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
try:
    asyncio.run(write_snapshot(path, index(20_000), clock, {}))
except OSError as full:
    print(type(full).__name__, full.errno)
print(asyncio.run(restore_snapshot(path, Index(), clock)).entries)
"""


def test_the_former_snapshot_stays(tmp_path: Path) -> None:
    path = tmp_path / "index.snapshot"
    done = subprocess.run([sys.executable, "-c", WRITES, str(path)], capture_output=True, text=True)
    assert done.stdout.split() == ["OSError", "27", "10"], done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["index.snapshot"]
