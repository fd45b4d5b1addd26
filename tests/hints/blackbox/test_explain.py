"""`terraflow hints explain`, of a running service and of a snapshot, and what `token` refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from terraflow.core.reasons import Lookup
from terraflow.hints.wire import inferencecache_pb2 as pb
from tests.hints.blackbox.served import Served, chain, update

ASKED = ("--tenant", "t", "--model", "m", "--scheme", "s", "--blocks", "61,62,63", "--counts", "64,64,64")


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose three replicas hold two blocks, one block, and another."""
    with Served(tmp_path_factory.mktemp("explained"), insecure_producers=True) as served:
        served.client().report(
            update("long", [b"a", b"b"], stats=pb.ReplicaStats(pressure=0.5)),
            update("short", [b"a"]),
            update("none", [b"z"]),
        )
        yield served


def hints(served: Served, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("terraflow"), "hints", *map(str, arguments)]
    return subprocess.run(command, env=served.environment, capture_output=True, text=True, timeout=30)


def test_a_running_service_says_what_it_would_answer_and_why(explained: Served) -> None:
    answer = explained.client().lookup(**chain([b"a", b"b", b"c"]))
    asked = hints(explained, "explain", *ASKED, "--at", explained.at["internal"], "--json")
    assert (asked.returncode, asked.stderr) == (0, "")
    said = json.loads(asked.stdout)
    assert said["reason"] == answer.reason_code == Lookup.PREFIX_MATCH
    assert (said["replicas_in_scope"], said["input_tokens"]) == (3, 192)
    rows = {row["replica"]: row for row in said["rows"]}
    assert [row["replica"] for row in said["rows"] if row["answered"]] == [
        row.replica_id for row in answer.replica_scores
    ]
    for row in answer.replica_scores:
        factors = rows[row.replica_id]["factors"]
        product = 1.0
        for factor in factors.values():
            product *= factor
        assert rows[row.replica_id]["score"] == pytest.approx(product, rel=1e-5)
        assert rows[row.replica_id]["score"] == pytest.approx(row.score, rel=1e-2)
    assert rows["long"]["factors"]["pressure"] == 0.5
    assert (rows["none"]["answered"], rows["none"]["blocks"]) == (False, 0)


def test_a_replicas_name_neither_steers_the_terminal_nor_begins_a_line(explained: Served) -> None:
    explained.client().report(update("r\x1b[2J\n* best", [b"a"], tenant_id="u"))
    asked = hints(explained, "explain", "--tenant", "u", *ASKED[2:], "--at", explained.at["internal"])
    assert asked.returncode == 0
    assert "* r\\x1b[2J\\n* best: " in asked.stdout
    assert all(line.isprintable() for line in asked.stdout.split("\n"))


def test_people_read_it_as_lines(explained: Served) -> None:
    asked = hints(explained, "explain", *ASKED, "--at", explained.at["internal"])
    assert asked.stdout.startswith("PREFIX_MATCH: ")
    assert "* long: the best score" in asked.stdout
    assert "\n* stands before each replica of the answer, best first\n" in asked.stdout
    assert "holds 2 blocks, 128 tokens" in asked.stdout
    assert "  none: holds nothing of the input" in asked.stdout


def test_a_snapshot_says_the_same_without_a_service(explained: Served, tmp_path: Path) -> None:
    with Served(tmp_path, insecure_producers=True) as served:
        served.client().report(update("r", [b"a"], tenant_id="t"), update("q", [b"z"], tenant_id="t"))
    snapshot = served.data / "index.snapshot"
    asked = hints(served, "explain", *ASKED, "--snapshot", snapshot, "--json")
    said = json.loads(asked.stdout)
    assert (said["reason"], [row["replica"] for row in said["rows"] if row["answered"]]) == ("PREFIX_MATCH", ["r"])
    nowhere = hints(served, "explain", *ASKED, "--snapshot", tmp_path / "none")
    assert (nowhere.returncode, "there is no snapshot" in nowhere.stderr) == (1, True)
    snapshot.write_bytes(b"x")
    damaged = hints(served, "explain", *ASKED, "--snapshot", snapshot)
    assert (damaged.returncode, "cannot be used" in damaged.stderr) == (1, True)


def test_a_chain_whose_counts_are_not_its_hashes_is_told_so(explained: Served) -> None:
    asked = hints(explained, "explain", *ASKED[:8], "--counts", "64", "--at", explained.at["internal"])
    assert "the chain has 3 block_hashes and 1 block_token_counts: give one count for each hash" in asked.stdout
    assert "* stands before" not in asked.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--blocks", "61,xyz"), 2, "--blocks: xyz is no hash in hexadecimal, such as 0a1b2c3d4e5f6071"),
        (("--blocks", "6"), 2, "--blocks: 6 is no hash in hexadecimal"),
        (("--blocks", "61 62"), 2, "block_hashes.0: give hexadecimal, two digits a byte"),
        (("--prefix-hash", "q"), 2, "--prefix-hash: q is no hash in hexadecimal"),
        (("--tokens", "1,b"), 2, "--tokens: b is no whole number; give numbers with commas between"),
        (("--counts", "9" * 5_000), 2, "--counts: 999"),
        (("--at", "127.0.0.1:1"), 1, "no hint service answers"),
        (("--data", "/nowhere"), 1, "internal token"),
    ],
)
def test_what_cannot_be_asked_says_why(explained: Served, arguments: tuple[str, ...], code: int, said: str) -> None:
    ended = hints(explained, "explain", "--tenant", "t", "--model", "m", "--scheme", "s", *arguments)
    assert ended.returncode == code
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_token_needs_its_key_and_makes_none_over_another(explained: Served, tmp_path: Path) -> None:
    key = tmp_path / "k.pem"
    options = ("token", "--key", key, "--name", "n", "--tenant", "t")
    assert "cannot read the key" in hints(explained, *options).stderr
    made = hints(explained, *options, "--new-key")
    assert made.returncode == 0
    assert made.stdout.count(".") == 1
    assert "token_keys" in made.stderr
    assert hints(explained, *options, "--new-key").returncode == 1
    assert hints(explained, *options).returncode == 0
    assert key.stat().st_mode & 0o777 == 0o600
