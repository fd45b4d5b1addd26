"""`terraflow hints replay` as its users call it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from terraflow.cli.hints import app

LINES = (
    b'{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}\n'
    b'{"timestamp": 9000, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}\n'
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.jsonl"
    file.write_bytes(LINES)
    return file


def test_json_holds_the_policies_and_nothing_else(trace: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(trace), "--json", "--replicas", "2", "--blocks", "10"])
    assert done.exit_code == 0
    said = json.loads(done.stdout)
    assert list(said) == ["policies"]
    assert [row["policy"] for row in said["policies"]] == ["round_robin", "least_loaded", "hashing", "hints", "oracle"]
    assert all(
        list(row) == ["policy", "hit_rate", "load_imbalance", "ttft_p50_ms", "ttft_p99_ms"] for row in said["policies"]
    )


def test_a_table_for_people(trace: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(trace), "--policy", "hints,oracle", "--policy", "round-robin"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["policy", "hints", "oracle", "round_robin", "2"]


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress(LINES))
    assert CliRunner().invoke(app, ["replay", str(file), "--policy", "oracle"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("trace.jsonl", LINES + b'{"timestamp": 9001}\n', "line 3: Object missing required field `input_length`"),
        ("trace.jsonl", b"", "line 1: the trace holds no request"),
        ("trace.jsonl.gz", LINES, "Not a gzipped file"),
        ("trace.jsonl.xz", LINES, "not supported"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    done = CliRunner().invoke(app, ["replay", str(file)])
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_file_that_is_not_there_and_a_policy_that_is_none(tmp_path: Path, trace: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "none")])
    assert (done.exit_code, "No such file" in done.stderr) == (2, True)
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "n\x1b[2J\u202e\none")])
    assert (
        done.stderr
        == f"terraflow hints replay: cannot read {tmp_path}/n\\x1b[2J\\u202e\\none: No such file or directory\n"
    )
    done = CliRunner().invoke(app, ["replay", str(trace), "--policy", "luck"])
    assert (done.exit_code, "--policy luck: it is one of round_robin" in done.stderr) == (2, True)
