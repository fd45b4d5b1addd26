"""Histories of concurrent reservations, each checked for an order that explains it, and a racy control.

    python -m trust.store_histories [--histories 1000]

Exits 0 if every history of the store is linearizable and most of the racy control's are not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from terraflow.storage.sqlite.store import open_store
from tests.storage.histories import linearizable, record_history
from tests.storage.makers import SetClock
from tests.storage.test_money import LIMIT, RacyStore


async def _check(number: int) -> tuple[int, int]:
    rejected = caught = 0
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder), clock=SetClock())
        for seed in range(number):
            rejected += not linearizable(await record_history(store, seed, LIMIT), LIMIT)
            caught += not linearizable(await record_history(RacyStore(), seed, LIMIT), LIMIT)
        await store.close()
    return rejected, caught


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1_000)
    number = parser.parse_args(arguments).histories
    rejected, caught = asyncio.run(_check(number))
    print(f"{number} histories: {rejected} of the store rejected, {caught} of the racy control rejected")
    return 0 if rejected == 0 and caught > number // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
