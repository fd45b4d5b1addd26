"""How long the offline verifier takes for a million records: `python -m bench.verify [RECORDS]`.

The integrator makes the log, with a checkpoint every 5 000 records, and it is exported to a folder. The records
are those of the evidence tests (an intent with six capabilities, an outcome with one attempt). What is timed is
`terraflow.verifier` alone, with the files in the page cache, once with a process a core and once with one.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from terraflow.evidence.export import write_export
from terraflow.evidence.log import Integrator
from terraflow.evidence.merkle import leaf_hash
from terraflow.ports.ledger import Leaf, Tile
from terraflow.verifier.export import verify_export
from terraflow.verifier.formats import parse_key
from tests.evidence.sample import KEY, TENANT, VERIFIER_KEY, entry_at

RECORDS = 1_000_000
EVERY = 5_000


class GeneratedLedger:
    """The ledger's port over entries that are made when they are read."""

    def __init__(self) -> None:
        self.end = 0
        self.tiles: dict[tuple[int, int], bytes] = {}
        self.notes: list[bytes] = []

    def tenants(self) -> Sequence[str]:
        return [TENANT]

    def size(self, _tenant: str) -> int:
        return self.end

    def leaves(self, _tenant: str, start: int, end: int) -> Sequence[Leaf]:
        entries = ((index, entry_at(index)) for index in range(start, end))
        return [Leaf(index, entry, leaf_hash(entry)) for index, entry in entries]

    def tile(self, _tenant: str, level: int, index: int) -> bytes | None:
        return self.tiles.get((level, index))

    def checkpoint(self, _tenant: str) -> bytes | None:
        return self.notes[-1] if self.notes else None

    def checkpoints(self, _tenant: str) -> Iterator[bytes]:
        return iter(self.notes)

    def publish(self, _tenant: str, _size: int, tiles: Sequence[Tile], checkpoint: bytes) -> None:
        self.tiles.update({(tile.level, tile.index): tile.hashes for tile in tiles})
        self.notes.append(checkpoint)


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Make the export, then time its verification."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory() as folder:
        ledger, out = GeneratedLedger(), Path(folder)
        integrator = Integrator(ledger, KEY)
        print(f"making a log of {records} records", file=sys.stderr)
        for end in range(EVERY, records + EVERY, EVERY):
            ledger.end = min(end, records)
            integrator.step(TENANT)
        print("exporting it", file=sys.stderr)
        exported = write_export(ledger, TENANT, out, KEY)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        print(f"{records} records, {exported.files} files, {size / 1e6:.0f} MB, {len(ledger.notes)} checkpoints")
        for processes in (os.cpu_count() or 1, 1):
            start, before = time.monotonic(), cpu_s()
            verify_export(out, parse_key(VERIFIER_KEY), processes=processes)
            taken, cpu = time.monotonic() - start, cpu_s() - before
            each = cpu / records * 1e6
            print(f"verified with {processes} process(es) in {taken:.2f} s; CPU {cpu:.2f} s, {each:.1f} µs a record")


if __name__ == "__main__":
    main()
