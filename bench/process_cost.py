"""What a process and its children have cost so far, from Linux's /proc.

1. CPU is user plus system time of the whole tree of living processes. The kernel keeps it exactly and shows it in
   ticks of 10 ms, so a phase should cost half a second or more to be read within 2 %.
2. Memory is the resident set, summed over the tree; pages that two processes share count twice.
Source of the format: proc(5), `/proc/pid/stat`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Cost:
    """CPU seconds and resident bytes at one instant."""

    cpu_s: float
    rss_bytes: int


@dataclass(frozen=True)
class Stat:
    """One process's line."""

    pid: int
    parent: int
    cpu_s: float
    rss_bytes: int


def parse_stat(line: str) -> Stat:
    """Fields of a `/proc/pid/stat` line. The command (field 2) may hold blanks and brackets: the last `)` ends it.

    Fields used, counted from 1: 1 pid, 4 ppid, 14 utime, 15 stime, 24 rss in pages.
    """
    name_end = line.rindex(")")
    after = line[name_end + 2 :].split()
    return Stat(
        pid=int(line[: line.index(" ")]),
        parent=int(after[1]),
        cpu_s=(int(after[11]) + int(after[12])) * TICK_S,
        rss_bytes=int(after[21]) * PAGE_BYTES,
    )


def tree(root: int, stats: list[Stat]) -> list[Stat]:
    """`root` and all its descendants among `stats`, in no order that matters."""
    children: dict[int, list[Stat]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
    found = [stat for stat in stats if stat.pid == root]
    for stat in found:
        found.extend(children.get(stat.pid, ()))
    return found


def cost(root: int) -> Cost:
    """The cost of the tree under process `root`. Raises ProcessLookupError when it is gone."""
    members = tree(root, _all_stats())
    if not members:
        raise ProcessLookupError(root)
    return Cost(sum(s.cpu_s for s in members), sum(s.rss_bytes for s in members))


def parse_busy(text: str) -> float:
    """CPU seconds that all cores together have worked, of `/proc/stat`: all of its first line but idle and iowait,
    and but the guests' time, which user time holds already. Stolen time counts: it was not ours."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, text.split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def busy_s() -> float:
    """What `parse_busy` says now."""
    return parse_busy((_PROC / "stat").read_text())


def threads_cpu_s(pid: int) -> dict[int, float]:
    """CPU seconds of each living thread of one process, by the kernel's number. Empty when it is gone."""
    return {stat.pid: stat.cpu_s for stat in _stats_in(_PROC / str(pid) / "task")}


def _all_stats() -> list[Stat]:
    return _stats_in(_PROC)


def _stats_in(place: Path) -> list[Stat]:
    stats: list[Stat] = []
    if not place.exists():
        return stats
    for folder in place.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stats.append(parse_stat((folder / "stat").read_text()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return stats
