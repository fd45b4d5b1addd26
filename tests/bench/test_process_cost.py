"""Reading /proc, on lines as the kernel writes them and on a process that is known to work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.process_cost import PAGE_BYTES, TICK_S, Stat, cost, parse_busy, parse_stat, tree

# Fields as in proc(5): utime 250, stime 50, 7 threads, rss 2 560 pages; the command is as hostile as one can be.
LINE = (
    "4242 (py) S 1 (x) S 17 4242 4242 0 -1 4194304 900 0 3 0 250 50 11 12 20 0 7 0 123456 99999744 2560 "
    "18446744073709551615 1 1 0 0 0 0 0 16781312 17642 0 0 0 17 1 0 0 0 0 0"
)


def test_a_command_with_blanks_and_brackets_does_not_shift_the_fields() -> None:
    assert parse_stat(LINE) == Stat(pid=4242, parent=17, cpu_s=300 * TICK_S, rss_bytes=2560 * PAGE_BYTES)


def test_a_tree_is_the_root_and_all_its_descendants() -> None:
    parents = {10: 1, 11: 10, 12: 10, 13: 12, 20: 1, 21: 20}
    stats = [Stat(pid, parent, 0.0, 0) for pid, parent in parents.items()]
    assert {stat.pid for stat in tree(10, stats)} == {10, 11, 12, 13}
    assert tree(99, stats) == []


def test_busy_time_leaves_out_waiting_and_does_not_count_guests_twice() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    text = "cpu  100 20 30 9999 8888 4 5 1 50 6\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert parse_busy(text) == pytest.approx(160 * TICK_S)


def test_own_cost_agrees_with_what_the_interpreter_knows() -> None:
    own = next(parse_stat(line) for line in [Path("/proc/self/stat").read_text()])
    assert own.pid == os.getpid() and own.parent == os.getppid()
    times = os.times()
    assert own.cpu_s == pytest.approx(times.user + times.system, abs=0.1)


def test_the_cost_of_a_child_counts_and_that_of_a_dead_process_is_an_error() -> None:
    burn = "import time\nwhile time.process_time() < 0.15: pass\nprint(flush=True)\ninput()"
    shell = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", shell, burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        spent = cost(process.pid)
        process.communicate(b"\n")
    # Each of the two processes may have part of a tick of either kind that is not shown yet.
    assert 0.15 - 4 * TICK_S <= spent.cpu_s < 1.5
    assert spent.rss_bytes > 5_000_000
    with pytest.raises(ProcessLookupError):
        cost(process.pid)
