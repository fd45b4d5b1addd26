"""`make profile`: where the plane's CPU goes under load, by function, as py-spy samples it from outside.

1. The plane runs as in `make bench`; only the sampler is added, and it stops the plane for a moment at each
   sample. Shares are right; times are not to be compared with the bench's.
2. Functions are sampled in the thread that holds the interpreter's lock, so that waiting is in no share. Work that
   lets go of the lock (SQLite's, in its thread) is not in them: the CPU by thread, which comes first, has it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from bench import cases
from bench.litellm_proxy import ENVIRONMENT
from bench.plane import plane
from bench.process_cost import threads_cpu_s
from bench.processes import Server
from bench.run import measure, mock_upstream, say

CASES = {"plain": cases.PLAIN, "refusal": cases.REFUSAL, "paced": cases.PACED, "burst": cases.BURST}
_SAMPLER = ENVIRONMENT / "bin/py-spy"
_LEAD_S = 2.0


def shares(stacks: str) -> tuple[Counter[str], Counter[str], int]:
    """Samples by function, own and with all it called, and their total, of collapsed stacks.

    A line is `outermost;…;innermost COUNT` (py-spy's `raw` format). A function that is twice on a stack counts
    once.
    """
    own, within, total = Counter[str](), Counter[str](), 0
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack:
            continue
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
        total += int(count)
    return own, within, total


def listing(counts: Counter[str], total: int, rows: int) -> str:
    """The first of them as lines of per cent and function."""
    return "\n".join(f"{count / total:7.1%}  {frame}" for frame, count in counts.most_common(rows))


def sample(server: Server, seconds: float, rate: int, native: bool, out: Path) -> str:
    """Collapsed stacks of the server's threads. Raises RuntimeError when py-spy may not or cannot."""
    command = [str(_SAMPLER), "record", "--pid", str(server.pid), "--format", "raw", "--function", "--gil"]
    command += ["--duration", str(int(seconds)), "--rate", str(rate), "--output", str(out)]
    if native:
        command.append("--native")
    done = subprocess.run(command, capture_output=True, timeout=seconds + 60, check=False)
    if done.returncode:
        raise RuntimeError(f"py-spy: {done.stderr.decode()[-1000:]}")
    return out.read_text()


def thread_names(pid: int) -> dict[int, str]:
    """Python's names of the threads of a process, by the kernel's number."""
    dump = subprocess.run(
        [str(_SAMPLER), "dump", "--json", "--pid", str(pid)], capture_output=True, timeout=60, check=False
    )
    threads = json.loads(dump.stdout) if dump.returncode == 0 else []
    return {thread["os_thread_id"]: thread["thread_name"] or "" for thread in threads}


def thread_listing(names: dict[int, str], before: dict[int, float], after: dict[int, float], wall_s: float) -> str:
    """Each thread that worked, as share of one core, the busiest first."""
    spent = Counter({tid: after[tid] - before.get(tid, 0.0) for tid in after})
    lines = [f"{cpu_s / wall_s:7.1%}  {names.get(tid) or 'not of Python'}" for tid, cpu_s in spent.most_common()]
    return "\n".join(line for line in lines if not line.startswith("   0.0%"))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make profile", description="Where the plane's CPU goes under load.")
    parser.add_argument("--case", choices=CASES, default="plain")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=400, help="samples a second")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--native", action="store_true", help="also frames of compiled extensions (slower)")
    parser.add_argument("--stacks", type=Path, help="keep the collapsed stacks, for a flame graph")
    asked = parser.parse_args()
    if not _SAMPLER.exists():
        say("py-spy is not installed in the bench's environment: run `make bench-setup` first")
        return 1
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="profile-", dir="build") as name:
        folder = Path(name).resolve()
        with mock_upstream(folder) as mock, plane(mock.base_url, folder / "plane") as server:
            times = {"seconds": asked.seconds + _LEAD_S, "warmup_s": 1.0}
            what = (server, mock, CASES[asked.case], asked.connections)
            load = threading.Thread(target=measure, args=what, kwargs=times)
            load.start()
            threading.Event().wait(_LEAD_S)
            before, begun = threads_cpu_s(server.pid), time.monotonic()
            stacks = sample(server, asked.seconds, asked.rate, asked.native, folder / "stacks")
            after, wall_s = threads_cpu_s(server.pid), time.monotonic() - begun
            names = thread_names(server.pid)
            load.join()
    own, within, total = shares(stacks)
    print(f"{asked.case} at c={asked.connections}: share of a core by thread")
    print(thread_listing(names, before, after, wall_s))
    print(f"\n{total} samples\n\nown time")
    print(listing(own, total, asked.rows))
    print("\nwith all that it called")
    print(listing(within, total, asked.rows))
    if asked.stacks:
        asked.stacks.write_text(stacks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
