"""`make trust`: every proof runs, and one that fails is not forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from trust.__main__ import main, proofs

PROOF = '''"""{summary}

More."""


def main() -> int:
    return {code}


if __name__ == "__main__":
    raise SystemExit(main())
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "long"
    made.mkdir()
    (made / "__init__.py").touch()
    (made / "cases.py").write_text('"""No proof: others use it."""\n')
    (made / "first.py").write_text(PROOF.format(summary="It holds.", code=0))
    (made / "second.py").write_text(PROOF.format(summary="It does not.", code=1))
    (made / "third.py").write_text(PROOF.format(summary="It breaks.", code="1 // 0"))
    return made


def test_modules_with_a_main_are_proofs(folder: Path) -> None:
    assert proofs(folder) == [("first", "It holds."), ("second", "It does not."), ("third", "It breaks.")]


def test_all_run_and_one_that_fails_fails_the_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], folder) == 1
    told = capsys.readouterr().out
    assert "[1/3] first: It holds." in told
    assert "[3/3] FAILED" in told
    assert "1 of 3 hold; failed: second, third" in told


def test_named_ones_run_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["first"], folder) == 0
    assert "1 of 1 hold" in capsys.readouterr().out
    assert main(["fourth"], folder) == 2
    assert "no such proof: fourth; there are first, second, third" in capsys.readouterr().out
