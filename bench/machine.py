"""What the bench ran on, in words for the page."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.stats import percentile

_FSYNCS = 200
_FSYNC_BYTES = 4_096


def machine(folder: Path) -> dict[str, str]:
    """Facts by name. `folder` is where the plane's data goes: its disk is the one whose fsync counts."""
    memory_kb = _field(Path("/proc/meminfo"), "MemTotal").split()[0]
    return {
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
        "processor": f"{_field(Path('/proc/cpuinfo'), 'model name')}, {os.cpu_count()} cores, shared by the mock, "
        f"the load generator and what is measured; load average {os.getloadavg()[0]:.1f} at the start",
        "memory": f"{int(memory_kb) / 1e6:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in ("uvloop", "uvicorn", "aiohttp", "msgspec")),
        "disk": f"fsync of a 4 KB append in the data folder: p50 {fsync_ms(folder):.2f} ms",
    }


def fsync_ms(folder: Path) -> float:
    """The median time to append 4 KB to a file in `folder` and make it durable."""
    path, times = folder / "fsync-probe", []
    with path.open("wb", buffering=0) as file:
        for _ in range(_FSYNCS):
            begun = time.perf_counter()
            file.write(bytes(_FSYNC_BYTES))
            os.fsync(file.fileno())
            times.append((time.perf_counter() - begun) * 1000)
    path.unlink()
    return percentile(times, 50)


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
