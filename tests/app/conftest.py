"""The edge alone, with a caller's connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.edge import Connection, Edge


@pytest.fixture
def edge() -> Iterator[Edge]:
    """An edge that listens."""
    with Edge() as running:
        yield running


@pytest.fixture
def caller(edge: Edge) -> Iterator[Connection]:
    """A connection to it."""
    with edge.connect() as connection:
        yield connection
