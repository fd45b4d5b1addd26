"""Seeded rubbish against the hints' HTTP/2 server: nothing escapes, nothing stays, and others are still served.

    python -m trust.http2_rubbish [--seconds 60] [--seed 1]

The same sessions as in the tests (mutated, shuffled, invented), for longer and with other seeds; the process's memory
may not grow over the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence

import psutil

from tests.hints.http2.test_fuzz import invented, mutated, rubbish, shuffled

ROUNDS = 10
GROWTH_MAX = 1.05


async def prove(seconds: float, seed: int) -> list[str]:
    """What is wrong."""
    process, memory, sessions = psutil.Process(os.getpid()), [], 0
    for part in range(ROUNDS):
        for kind, make in enumerate((mutated, shuffled, invented)):
            sessions += await rubbish(make, seconds / (3 * ROUNDS), seed + 100 * part + kind)
        gc.collect()
        memory.append(process.memory_info().rss)
        print(f"{sessions} sessions, {memory[-1] / 1e6:.0f} MB", flush=True)
    if memory[-1] > memory[ROUNDS // 2] * GROWTH_MAX:
        return [f"memory grew from {memory[ROUNDS // 2] / 1e6:.0f} to {memory[-1] / 1e6:.0f} MB"]
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    wrong = asyncio.run(prove(options.seconds, options.seed))
    print("\n".join(wrong) or "no session cost anybody but its sender")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
