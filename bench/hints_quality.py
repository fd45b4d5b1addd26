"""What route hints are worth: a recorded hour of conversations through simulated caches, policy by policy.

Run `python -m bench.hints_quality [--json FILE]`. Counted, not timed: the same on every machine.
"""

from __future__ import annotations

import argparse
import lzma
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.report import table
from terraflow.hints.replay.run import Figures, Setting, replay
from terraflow.hints.replay.trace import parse_trace

TRACE = Path(__file__).parents[1] / "tests" / "hints" / "traces" / "mooncake_conversation_trace.jsonl.xz"
NEEDED_HIT_RATE = 0.335
NEEDED_IMBALANCE = 1.03


def measure() -> dict[str, Figures]:
    """Each policy's figures, at 8 replicas of 4 000 blocks that prefill 8 000 tokens a second."""
    with lzma.open(TRACE) as lines:
        trace = parse_trace(lines)
    return {figures.policy: figures for figures in replay(trace, Setting())}


def missed(found: Mapping[str, Figures]) -> list[str]:
    """What does not reach its figure, in words."""
    hints = found["hints"]
    said = []
    if hints.hit_rate < NEEDED_HIT_RATE:
        said.append(f"hints hit {hints.hit_rate:.1%}, not {NEEDED_HIT_RATE:.1%}")
    if hints.load_imbalance > NEEDED_IMBALANCE:
        said.append(f"hints' load imbalance is {hints.load_imbalance:.3f}, not {NEEDED_IMBALANCE}")
    said.extend(
        f"hints' p99 TTFT is not below that of {other}"
        for other in ("round_robin", "least_loaded", "hashing")
        if hints.ttft_p99_ms >= found[other].ttft_p99_ms
    )
    return said


def report(found: Mapping[str, Figures]) -> str:
    """The figures as a Markdown table."""
    rows = [
        [
            name,
            f"{each.hit_rate:.1%}",
            f"{each.load_imbalance:.3f}",
            f"{each.ttft_p50_ms:.0f}",
            f"{each.ttft_p99_ms:.0f}",
        ]
        for name, each in found.items()
    ]
    return table(["policy", "tokens hit", "max/mean prefill", "TTFT p50 ms", "p99 ms"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="keep the figures here")
    options = parser.parse_args(arguments)
    found = measure()
    print(report(found))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"policies": list(found.values())}))
    for what in missed(found):
        print(f"MISSED: {what}")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
