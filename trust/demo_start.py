"""`terraflow demo` says where it is within two seconds, from a folder that does not exist yet.

    python -m trust.demo_start [--count 20]

The command is started as a newcomer would, again and again, each time with a fresh data folder, the bytecode compiled;
what counts is the time from the start of the process to its first line. That line is looked at, one request is asked,
and the process is ended.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import terraflow

FIRST_LINE_S = 2.0
GIVEN_UP_S = 30.0
FIELDS = {"base_url", "api_key", "console_url", "username", "password", "public_key"}


def start_once(folder: Path) -> tuple[float, list[str]]:
    """Seconds to the first line of one demo on a new folder, and every problem."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TERRAFLOW_")}
    began = time.monotonic()
    demo = subprocess.Popen(
        [Path(sys.executable).with_name("terraflow"), "demo", "--data", folder, "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        assert demo.stdout is not None
        ready, _, _ = select.select([demo.stdout], [], [], GIVEN_UP_S)
        line = demo.stdout.readline() if ready else b""
        took = time.monotonic() - began
        return took, _problems(line)
    finally:
        demo.terminate()
        demo.wait(GIVEN_UP_S)
        assert demo.stdout is not None
        demo.stdout.close()


def _problems(line: bytes) -> list[str]:
    if not line:
        return ["it said nothing"]
    said = json.loads(line)
    if set(said) != FIELDS:
        return [f"its first line has {sorted(said)}"]
    request = urllib.request.Request(
        said["base_url"] + "/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode(),
        {"Authorization": f"Bearer {said['api_key']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        reason = reply.headers["x-terraflow-reason"]
    return [] if reason == "PERMITTED" else [f"it answered {reason}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args(arguments)
    compileall.compile_dir(Path(terraflow.__file__).parent, quiet=1)
    took: list[float] = []
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.count):
            seconds, problems = start_once(Path(folder) / f"demo-{number}")
            took.append(seconds)
            found += problems
            print(f"{number + 1}/{options.count}: {seconds:.2f} s", flush=True)
    took.sort()
    print("\n".join(found[:10]))
    print(f"{len(took)} starts: {took[len(took) // 2]:.2f} s (median), {took[-1]:.2f} s (longest) to the first line")
    return 0 if not found and took[-1] <= FIRST_LINE_S else 1


if __name__ == "__main__":
    sys.exit(main())
