"""Hostile event streams: how many hints name a replica that does not hold what they say, and none after a clear.

    python -m trust.hint_streams [--streams 5000] [--seed 0] [--planted FAULT]

Fleets of four simulated engines with real prefix caches publish over wires that lose, double, overtake and spoil
batches; engines restart and clear; replays come late, fail, come short, or there are none. Every lookup on the index
that the feeds' own code fills is judged by the caches (tests/hints/feed/hostile.py).

`--planted` runs a feed with a fault (tests/hints/feed/planted.py) that the judge must catch. Exits 0 if the figures
hold (or the fault was caught), else 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.hints.feed.hostile import WRONG_MAX, Judged, judge, make_source
from tests.hints.feed.planted import PLANTED

ENGINES = 4


def main(arguments: Sequence[str]) -> int:
    """Run the proof."""
    parser = argparse.ArgumentParser(prog="trust.hint_streams", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", choices=sorted(PLANTED))
    given = parser.parse_args(arguments)
    make = make_source if given.planted is None else PLANTED[given.planted]
    fleets = -(-given.streams // ENGINES)
    judged = Judged(0, 0, 0, 0, 0, 0, 0)
    shown = time.monotonic()
    for at in range(fleets):
        judged = Judged(*map(sum, zip(judged, judge(make, 1, first=given.seed + at), strict=True)))
        if time.monotonic() - shown > 2:
            shown = time.monotonic()
            print(
                f"  {judged.streams} of {fleets * ENGINES} streams, {judged.wrong} of {judged.hints} hints wrong",
                flush=True,
            )
    share = judged.wrong / max(1, judged.hints)
    print(
        f"{judged.streams} streams ({judged.gaps} gaps, {judged.restarts} restarts seen, {judged.degraded} degraded):"
        f" {judged.hints} hints, {judged.wrong} wrong ({share:.3%}, at most {WRONG_MAX:.1%}),"
        f" {judged.after_the_fact} of them after a restart or clear that was seen (at most 0)"
    )
    holds = share <= WRONG_MAX and judged.after_the_fact == 0
    if given.planted is not None:
        print("the planted fault was " + ("NOT noticed" if holds else "noticed"))
        return int(holds)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
