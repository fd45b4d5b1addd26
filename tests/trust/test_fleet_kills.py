"""Engines and the hint service killed and stopped under load, a few times; and a plane that gives up is caught."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from trust.fleet_kills import Site, kills


def test_no_request_fails(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert kills(Site(tmp_path, stack), 3, seed=1) == []


def test_a_plane_that_tries_no_other_replica_is_caught(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert kills(Site(tmp_path, stack, provider_attempts_max=1), 6, seed=3, strikes=("engine",)) != []
