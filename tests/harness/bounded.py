"""Bounded time, for tests that wait for processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

TEST_S = 60


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """No test takes longer than a minute, whatever it waits for but an event loop that keeps the exception to itself:
    what bounds every test (`pyproject.toml`) ends that. A conftest that imports it has it for its folder."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"the test has run for {TEST_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
