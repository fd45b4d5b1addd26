"""A disk after a power cut, made from what a process wrote: all that was synced, and any subset of the rest.

1. strace records, in order, what a writer does to its data folder: opening, writing, truncating, syncing, unlinking.
2. Up to the moment of the cut, a sync of a file makes everything written to that file before it certain. What was
   written after its last sync may have arrived or not, each write by itself, in sectors of 512 bytes.
3. A file's size is certain as of its last sync too; a truncation or an unlink after it may have happened or not.
4. What the writer was told stands in the same record (its standard output), so it is known exactly what had been
   acknowledged at the cut.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.storage.durability import Acknowledged, problems

SECTOR = 512
RECORD_S = 1.0
"""How long one writer is recorded; many cuts are made of one record."""

_CALL = re.compile(r"^(?:\d+ +)?(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_CUT_OFF = re.compile(r"^(?P<pid>\d+) +(?P<head>.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<tail>.*)$")
_FILE = re.compile(r"^(?P<fd>\d+)<(?P<path>[^>]*)>")
_BYTES = re.compile(r'"(?P<hex>(?:\\x[0-9a-f]{2})*)"')
_NUMBER = re.compile(r"(\d+)$")

CALLS = "openat,pwrite64,write,ftruncate,fsync,fdatasync,unlink"


class Step(NamedTuple):
    """One recorded call: on which file, where, with what."""

    name: str
    path: str
    data: bytes = b""
    offset: int = 0


def record(folder: Path, seed: int, *, careless: bool) -> list[Step]:
    """Run a writer on a fresh folder under strace for a while."""
    trace = folder.with_name("trace")
    command = [sys.executable, "-m", "tests.storage.killed_writer", str(folder), str(seed)]
    command += ["careless"] if careless else []
    strace = ["strace", "-f", "-y", "-xx", "-s", "9999999", "-e", f"trace={CALLS}", "-o", str(trace)]
    try:
        subprocess.run(
            [*strace, "timeout", "-s", "KILL", str(RECORD_S), *command], stdout=subprocess.DEVNULL, check=False
        )
        return list(parse(trace.read_text("ascii"), str(folder)))
    finally:
        trace.unlink(missing_ok=True)


def parse(trace: str, folder: str) -> Iterator[Step]:
    """The steps of a strace record that touch the folder or tell an acknowledgement. A call counts when it returns."""
    heads: dict[str, str] = {}
    for line in trace.splitlines():
        if cut := _CUT_OFF.match(line):
            heads[cut["pid"]] = cut["head"]
            continue
        if resumed := _RESUMED.match(line):
            line = f"{resumed['pid']} {heads.pop(resumed['pid'], '')}{resumed['tail']}"
        call = _CALL.match(line)
        if call is None or int(call["result"]) < 0:
            continue
        step = _step(call["name"], call["arguments"], folder)
        if step is not None:
            yield step


def _step(name: str, arguments: str, folder: str) -> Step | None:
    found = _BYTES.search(arguments)
    data = bytes.fromhex(found["hex"].replace("\\x", "")) if found else b""
    if name in ("openat", "unlink"):
        path = data.decode("utf-8", "replace")
        created = name == "openat" and "O_CREAT" in arguments
        return Step(name, path) if path.startswith(folder) and (created or name == "unlink") else None
    where = _FILE.match(arguments)
    if where is None:
        return None
    path = bytes.fromhex(where["path"].replace("\\x", "")).decode() if "\\x" in where["path"] else where["path"]
    if name == "write" and where["fd"] == "1":
        return Step("told", "", data)
    if not path.startswith(folder) or path.endswith(("-shm", "plane.lock")):
        return None
    last = _NUMBER.search(arguments)
    return Step(name, path, data, int(last[1]) if last and name in ("pwrite64", "ftruncate") else 0)


class _Cut:
    """What one file holds for certain, and what may have been done to it since."""

    def __init__(self) -> None:
        self.certain = bytearray()
        self.pending: list[Step] = []

    def sync(self) -> None:
        for step in self.pending:
            apply(self.certain, step)
        self.pending.clear()


def apply(content: bytearray, step: Step) -> None:
    """Do a write or a truncation."""
    if step.name == "ftruncate":
        del content[step.offset :]
        content.extend(b"\0" * (step.offset - len(content)))
        return
    end = step.offset + len(step.data)
    content.extend(b"\0" * (end - len(content)))
    content[step.offset : end] = step.data


def disk_after(steps: list[Step], folder: Path, chance: random.Random) -> Acknowledged:
    """Make the folder as a cut after the last step may leave it; what had been acknowledged by then."""
    files: dict[str, _Cut] = {}
    told = b""
    for step in steps:
        if step.name == "told":
            told += step.data
        elif step.name == "unlink":
            files.pop(step.path, None)
        else:
            file = files.setdefault(step.path, _Cut())
            if step.name in ("fsync", "fdatasync"):
                file.sync()
            elif step.name != "openat":
                file.pending.append(step)
    for path, file in files.items():
        share = chance.choice([0.0, 0.5, 0.9, 1.0])
        for step in file.pending:
            for part in _sectors(step):
                if chance.random() < share:
                    apply(file.certain, part)
        (folder / Path(path).name).write_bytes(file.certain)
    acknowledged = Acknowledged()
    acknowledged.add(told)
    return acknowledged


def _sectors(step: Step) -> Iterator[Step]:
    if step.name == "ftruncate":
        yield step
        return
    start = step.offset
    while start < step.offset + len(step.data):
        end = min((start // SECTOR + 1) * SECTOR, step.offset + len(step.data))
        yield Step(step.name, step.path, step.data[start - step.offset : end - step.offset], start)
        start = end


def simulated_cuts(number: int, first_seed: int, *, careless: bool) -> tuple[int, list[str]]:
    """Record one writer and cut it at `number` random steps; what was acknowledged, and every problem found."""
    chance = random.Random(first_seed)
    acknowledged = 0
    with tempfile.TemporaryDirectory() as scratch:
        steps = record(Path(scratch).resolve() / "data", first_seed, careless=careless)
        opened = next((n for n, step in enumerate(steps) if step.name == "told"), len(steps))
        for cut in range(number):
            folder = Path(scratch) / str(cut)
            folder.mkdir()
            known = disk_after(steps[: chance.randint(opened, len(steps))], folder, chance)
            acknowledged = max(acknowledged, len(known.begun))
            found = problems(folder, known)
            if found:
                return acknowledged, found
    return acknowledged, []
