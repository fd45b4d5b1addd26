"""`terraflow demo` as a newcomer runs it: what it prints, and what it leaves behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[dict[str, str]]:
    """A running demo, and what it answered; what it said beside that is in `stderr`."""
    errors = folder / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("terraflow"), "demo", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()


def test_a_folder_of_its_own_is_named_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    with demo(tmp_path) as said:
        assert httpx2.get(said["base_url"].replace("/v1", "/readyz")).status_code == 200
    [named] = re.findall(r"the data folder is (\S+); it is removed then", (tmp_path / "stderr").read_text())
    assert "terraflow-demo-" in named and not Path(named).exists()


def test_a_named_folder_stays_and_keeps_its_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with demo(tmp_path, "--data", str(data)) as first:
        pass
    assert f"the data folder is {data}\n" in (tmp_path / "stderr").read_text()
    with demo(tmp_path, "--data", str(data)) as second:
        assert (first["api_key"], first["public_key"]) == (second["api_key"], second["public_key"])
    (data / "keys" / "log.pem").unlink()
    done = subprocess.run(
        [Path(sys.executable).with_name("terraflow"), "demo", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "log.pem is missing" in done.stderr and done.stderr.count("\n") == 1
