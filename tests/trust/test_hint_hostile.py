"""A little hostility, and what is planted is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from trust.hint_hostile import Found, prove


def test_hostile_producers_touch_nobody_else(tmp_path: Path) -> None:
    prove(tmp_path, 20_000, 60, together_s=0.5)


def test_quotas_that_the_index_has_no_room_for_are_caught(tmp_path: Path) -> None:
    with pytest.raises(Found, match=r"keys|went wrong"):
        prove(tmp_path, 20_000, 10, together_s=0.2, entries_max=60_000)
