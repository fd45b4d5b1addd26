"""What tests of the lookup start from."""

from __future__ import annotations

import pytest

from tests.hints.deciding.lookups import two_replicas
from tests.hints.model import Model


@pytest.fixture
def index() -> Model:
    """Two replicas."""
    return two_replicas()
