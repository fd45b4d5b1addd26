"""kill -9 at random moments under load: nothing acknowledged is lost or doubled.

    python -m trust.store_kills [--kills 1000] [--folder DIR]

Exits 0 and prints the figures if nothing was lost, else prints what was and exits 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.storage.kills import kills

ROUND = 100
"""Kills on one folder before a fresh one is taken: the judge reads all of it each time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, default=None, help="where to put the data, to choose the disk")
    options = parser.parse_args(arguments)
    started, done, acknowledged = time.monotonic(), 0, 0
    while done < options.kills:
        number = min(ROUND, options.kills - done)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            told, found = kills(Path(folder) / "data", number, first_seed=done, longest_s=0.2, judge_every=10)
        done, acknowledged = done + number, acknowledged + told
        print(f"{done}/{options.kills} kills, {acknowledged} requests acknowledged", flush=True)
        if found:
            print("\n".join(found[:20]), file=sys.stderr)
            return 1
    print(f"{done} kills in {time.monotonic() - started:.0f} s, {acknowledged} acknowledged, 0 lost or doubled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
