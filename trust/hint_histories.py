"""Generated histories of route hints: every lookup and every removal as the plain model says.

    python -m trust.hint_histories [--histories 50000]

A history is sixty steps of reports, events, policies, time and lookups over a small universe, run through the index and
the lookup and through a plain model of both. Exits 0 if no answer differs and every reason code was met.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from terraflow.core.reasons import Lookup
from tests.hints.deciding.histories import STEPS, compare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=50_000)
    number = parser.parse_args(arguments).histories
    seen: Counter[str] = Counter()
    differing = 0
    began = time.monotonic()
    for seed in range(number):
        difference = compare(seed, seen)
        if difference is not None:
            differing += 1
            print(difference, flush=True)
        if (seed + 1) % max(1, number // 20) == 0:
            print(f"  {seed + 1} of {number} histories, {time.monotonic() - began:.0f} s", flush=True)
    codes = ", ".join(f"{code} {count}" for code, count in sorted(seen.items()))
    print(f"{number} histories of {STEPS} steps: {differing} differ; {seen.total()} lookups ({codes})")
    return 0 if differing == 0 and set(seen) == set(Lookup) else 1


if __name__ == "__main__":
    sys.exit(main())
