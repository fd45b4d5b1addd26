"""What the documentation shows to verify an export with, runs as it stands there, and refuses a changed export."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.sample import VERIFIER_KEY, export_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evidence.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the page supposes it: the export and the key."""
    made = tmp_path_factory.mktemp("documented")
    export_of((1, 300, 700), made / "export")
    (made / "log.key").write_text(VERIFIER_KEY + "\n")
    return made


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("program", PROGRAMS, ids=["pymerkle", "securesystemslib"])
def test_a_documented_verifier_accepts_an_export_and_refuses_a_changed_one(
    program: str, folder: Path, tmp_path: Path
) -> None:
    done = run(program, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the ")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    changed = copy / "export" / "tile" / "entries" / "001"
    raw = bytearray(changed.read_bytes())
    raw[40] ^= 1
    changed.write_bytes(raw)
    assert run(program, copy).returncode == 1
