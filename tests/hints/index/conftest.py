"""The index as the tests of this folder ask for it."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.hints.index.both import MODULES


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> ModuleType:
    """The module with `Index`: interpreted, and compiled where it is."""
    return MODULES[request.param]
