"""Power cuts under load: nothing acknowledged is lost or doubled.

    python -m trust.power_cuts [--cuts 500] [--careless] [--replay]

Where loop devices can be had (root), the cuts are real: the data lies on an ext4 file system of its own, which is
shut down in the middle of everything without flushing (EXT4_IOC_SHUTDOWN), then mounted again. What is told while
the shutdown is under way does not count: an fsync that it overtakes may still return success. Elsewhere, or with
`--replay`, they are simulated: strace records every write and sync of the writer, and a disk is made that holds all
that was synced before a moment and any subset of what was written since (trust/replay.py).

`--careless` runs a writer that does not wait for the disk; it must be caught, or the judge is blind. Exits 0 if
nothing was lost (or the careless writer was caught), 1 otherwise, 2 if neither way can be had here.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.storage.durability import Acknowledged, problems
from trust import replay

ROUND = 50
"""Cuts on one disk before a fresh one is taken: the judge reads all of it each time."""
DISK_BYTES = 256 * 1024 * 1024

EXT4_IOC_SHUTDOWN = 0x8004587D
"""_IOR('X', 125, __u32), and the flag that says: throw away what is not on the disk (linux/fs/ext4/ext4.h)."""
GOING_FLAGS_NOLOGFLUSH = 2


class Disk:
    """An ext4 file system in a file, mounted where its writers find it."""

    def __init__(self, folder: Path) -> None:
        self._image, self.mounted = folder / "disk", folder / "mounted"
        self.mounted.mkdir()
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)
        self.mount()

    def mount(self) -> None:
        """Mount it, which replays the file system's own journal."""
        subprocess.run(["mount", "-o", "loop", self._image, self.mounted], check=True)

    def unmount(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", self.mounted], check=True)

    def cut_power(self) -> None:
        """From now on nothing reaches the disk."""
        descriptor = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", GOING_FLAGS_NOLOGFLUSH))
        finally:
            os.close(descriptor)


@contextmanager
def disk() -> Iterator[Disk]:
    """A fresh disk. Raises CalledProcessError or OSError where none can be had."""
    with tempfile.TemporaryDirectory() as folder:
        made = Disk(Path(folder))
        try:
            yield made
        finally:
            made.unmount()


def real_cuts(number: int, first_seed: int, *, careless: bool) -> tuple[int, list[str]]:
    """Cut the power of one disk again and again; what was acknowledged, and every problem found."""
    acknowledged = Acknowledged()
    with disk() as device:
        told = device.mounted.with_name("told")
        folder = device.mounted / "data"
        for seed in range(first_seed, first_seed + number):
            with told.open("wb") as output:
                command = [sys.executable, "-m", "tests.storage.killed_writer", folder, str(seed)]
                writer = subprocess.Popen(
                    [*command, *(["careless"] if careless else [])], stdout=output, stderr=subprocess.DEVNULL
                )
                while told.stat().st_size < 1 and writer.poll() is None:
                    time.sleep(0.002)
                time.sleep(random.Random(seed).random() * 0.3)
                certain = told.stat().st_size
                device.cut_power()
                writer.kill()
                writer.wait()
            acknowledged.add(told.read_bytes()[:certain])
            device.unmount()
            device.mount()
            found = problems(folder, acknowledged)
            if found:
                return len(acknowledged.begun), found
    return len(acknowledged.begun), []


def loop_devices() -> bool:
    """Whether a disk can be had."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    try:
        with disk() as device:
            device.cut_power()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--careless", action="store_true")
    parser.add_argument("--replay", action="store_true", help="simulate even where real cuts can be had")
    options = parser.parse_args(arguments)
    if not options.replay and loop_devices():
        cut, how = real_cuts, "real power cuts on an ext4 file system"
    elif shutil.which("strace"):
        cut, how = replay.simulated_cuts, "simulated power cuts (writes recorded by strace)"
    else:
        print("power cuts need loop devices (root) or strace; neither can be had here", file=sys.stderr)
        return 2
    started, done, acknowledged = time.monotonic(), 0, 0
    found: list[str] = []
    while done < options.cuts and not found:
        number = min(ROUND, options.cuts - done)
        told, found = cut(number, done, careless=options.careless)
        done, acknowledged = done + number, acknowledged + told
        print(f"{done}/{options.cuts} {how}, {acknowledged} requests acknowledged", flush=True)
    print("\n".join(found[:20]))
    seconds = time.monotonic() - started
    print(f"{how}: {done} in {seconds:.0f} s, {acknowledged} acknowledged, {len(found)} problems", flush=True)
    return 0 if bool(found) is options.careless else 1


if __name__ == "__main__":
    sys.exit(main())
