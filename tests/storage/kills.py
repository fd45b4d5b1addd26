"""Killing a writer at random moments, again and again on one folder, and judging what is left."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from tests.storage.durability import Acknowledged, problems


def kill_once(folder: Path, seed: int, acknowledged: Acknowledged, longest_s: float, told_min: int = 1) -> None:
    """Start a writer, kill it a random while after it has told `told_min` bytes, and take down what it was told."""
    told = folder.with_name("told")
    with told.open("wb") as output:
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.killed_writer", str(folder), str(seed)], stdout=output
        )
        try:
            while told.stat().st_size < told_min and writer.poll() is None:
                time.sleep(0.002)
            time.sleep(random.Random(seed).random() * longest_s)
        finally:
            writer.kill()
            writer.wait()
    if writer.returncode != -9:
        raise RuntimeError("the writer ended by itself")
    acknowledged.add(told.read_bytes())


def kills(
    folder: Path, number: int, *, first_seed: int = 0, longest_s: float = 0.25, judge_every: int = 1
) -> tuple[int, list[str]]:
    """Kill `number` writers; how many requests were acknowledged, and every problem found."""
    acknowledged = Acknowledged()
    for seed in range(number):
        kill_once(folder, first_seed + seed, acknowledged, longest_s)
        if (seed + 1) % judge_every == 0 or seed + 1 == number:
            found = problems(folder, acknowledged)
            if found:
                return len(acknowledged.begun), found
    return len(acknowledged.begun), []
