"""One key, eight times at once, for a few keys; and what is planted is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from trust.one_key import rounds


async def test_one_key_makes_one_call(tmp_path: Path) -> None:
    made, found = await rounds(tmp_path / "data", 8)
    assert found == []
    assert (made.calls, made.kills) == (8, 2)


@pytest.mark.parametrize("fault", ["every_claim_taken", "key_freed_by_recovery"])
async def test_a_second_call_is_caught(fault: str, tmp_path: Path) -> None:
    _, found = await rounds(tmp_path / "data", 8, fault=fault)
    assert any(" calls, " in problem for problem in found)
