"""`terraflow hints sim-engine` as its users call it: what it says, how it ends, what it refuses."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from terraflow.cli.hints import app


def test_it_says_where_it_serves_and_ends_when_told() -> None:
    command = [Path(sys.executable).with_name("terraflow"), "hints", "sim-engine", "--lora", "fine=7", "--ranks", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], 30)[0]
            said = json.loads(process.stdout.readline())
            assert list(said) == ["base_url", "kv_events", "kv_replay", "pid"]
            assert (said["pid"], len(said["kv_events"]), len(said["kv_replay"])) == (process.pid, 2, 2)
            with urllib.request.urlopen(f"{said['base_url']}/models", timeout=10) as answer:
                assert [card["id"] for card in json.load(answer)["data"]] == ["sim", "fine"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fault", "drop=5"], "within 0 and 1"),
        (["--fault", "drop"], "not NAME=NUMBER"),
        (["--fault", "dropp=1"], "--fault dropp: is none; there are drop, lose, garbage, stall_s"),
        (["--fault", "drop=x"], "--fault drop=x: x is no number"),
        (
            ["--encoding", "xml"],
            "--encoding: 'xml' is not known: give one of array, map, array-of-maps, map-of-arrays",
        ),
        (["--hashes", "hex"], "--hashes: 'hex' is not known: give one of int, signed, bytes, text"),
        (["--lora", "fine=x"], "--lora fine=x: x is no number"),
        (
            ["--tokenizer", "/nowhere/at/all.json"],
            "there is no /nowhere/at/all.json: give a tokenizer.json, or a folder",
        ),
        (["--host", "203.0.113.1", "--events-port", "1"], ""),
    ],
)
def test_what_is_no_engine_is_refused(options: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["sim-engine", *options])
    assert done.exit_code == 2
    assert done.stderr.startswith("terraflow hints sim-engine: ")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--port", "give another address or port with --host or --port, 0 for a free one"),
        ("--events-port", "give another with --events-port or --replay-port, 0 for a free one"),
        ("--replay-port", "give another with --events-port or --replay-port, 0 for a free one"),
    ],
)
def test_a_port_that_is_taken_is_told_with_its_option(option: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = CliRunner().invoke(app, ["sim-engine", option, str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert said in done.stderr and "Address already in use" in done.stderr and "Errno" not in done.stderr
