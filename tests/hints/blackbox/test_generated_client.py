"""A client that grpcio's generator makes of the .proto as docs/hints/lookup.md tells, in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hints.blackbox.served import Served

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "hints" / "lookup.md").read_text("utf-8")
PROGRAM = Path(__file__).with_name("generated_client.py")


def block(language: str) -> str:
    """The page's one block in that language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def ran(*command: str | Path, path: Path | None = None) -> str:
    """What a command of Python's prints; AssertionError with what it complains of when it fails."""
    environment = os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's command has put the client's modules."""
    folder = tmp_path_factory.mktemp("generated")
    (command,) = (line for line in block("sh").splitlines() if "protoc" in line)
    python, *words = shlex.split(command)
    assert python == "python"
    ran(*(re.sub(r"_out=\.$", f"_out={folder}", word) for word in words))
    assert {made.name for made in folder.iterdir()} == {"inferencecache_pb2.py", "inferencecache_pb2_grpc.py"}
    return folder


def test_it_makes_every_call_of_the_contract(served: Served, generated: Path) -> None:
    told = json.loads(ran(PROGRAM, served.at["grpc"], "generated", path=generated))
    (best,) = told["LookupRoute"]["replicaScores"]
    assert (told["LookupRoute"]["reasonCode"], best["replicaId"], best["matchedTokens"]) == ("PREFIX_MATCH", "r", 128)
    assert told["ReportCacheState"] == told["PublishEvent"] == {"accepted": True}
    assert [(change["type"], change["replicaId"], change["prefixHash"]) for change in told["StreamCacheEvents"]] == [
        ("PREFIX_ADDED", "r", base64.b64encode(held).decode()) for held in (b"1" * 8, b"2" * 8)
    ]
    assert told["GetCacheState"] == {
        "replicas": [{"replicaId": "r", "pressure": 0.5}],
        "summary": {"totalPrefixes": "2"},
    }
    assert told["LookupPDRoute"] == {"reasonCode": "NO_HINT"}
    assert told["RenderTemplate"] == {"reasonCode": "TEMPLATE_NOT_FOUND"}
    assert [metric["type"] for metric in told["StreamMetrics"]] == ["gauge", "counter"]


def test_the_pages_client_is_answered(served: Served, generated: Path, tmp_path: Path) -> None:
    program = tmp_path / "client.py"
    assert "127.0.0.1:50051" in block("python")
    program.write_text(block("python").replace("127.0.0.1:50051", served.at["grpc"]))
    assert ran(program, path=generated) == "NO_HINT []\n"
