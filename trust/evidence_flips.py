"""Our verifier refuses an export with any one byte changed: random flips over every file of one.

A flip gives one byte another value. The file is chosen first, so small files are flipped as often as large ones.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from terraflow.verifier.export import verify_export
from terraflow.verifier.formats import Refused, parse_key
from tests.evidence.sample import VERIFIER_KEY, export_of

FLIPS = 10_000
SIZES = (1, 256, 300, 700)

Accepts = Callable[[Path], bool]


def accepts(directory: Path) -> bool:
    """Whether the verifier accepts the export."""
    try:
        verify_export(directory, parse_key(VERIFIER_KEY))
    except Refused:
        return False
    return True


def flip(directory: Path, flips: int, seed: int, accepts: Accepts = accepts) -> tuple[Counter[str], list[str]]:
    """How many flips each file had, and which were not noticed. The export is whole again afterwards."""
    chance = random.Random(seed)
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    originals = {name: (directory / name).read_bytes() for name in names}
    done: Counter[str] = Counter()
    unnoticed = []
    for _ in range(flips):
        name = chance.choice(names)
        changed = bytearray(originals[name])
        at, mask = chance.randrange(len(changed)), chance.randrange(1, 256)
        changed[at] ^= mask
        (directory / name).write_bytes(changed)
        if accepts(directory):
            unnoticed.append(f"{name} byte {at} xor {mask:#04x}")
        (directory / name).write_bytes(originals[name])
        done[name] += 1
    return done, unnoticed


def main() -> None:
    """10 000 flips; exits with 1 if one is not noticed, or if the untouched export is refused."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        export_of(SIZES, directory)
        if not accepts(directory):
            sys.exit("the untouched export is refused")
        seed, start = time.time_ns(), time.monotonic()
        done: Counter[str] = Counter()
        unnoticed: list[str] = []
        for part in range(20):
            some, missed = flip(directory, FLIPS // 20, seed + part)
            done += some
            unnoticed += missed
            print(f"\r{done.total()} of {FLIPS} flips", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        print(
            f"{done.total()} flips in {len(done)} files, {len(unnoticed)} not noticed, seed {seed}, "
            f"{time.monotonic() - start:.0f} s"
        )
        if unnoticed:
            sys.exit("\n".join(unnoticed))


if __name__ == "__main__":
    main()
