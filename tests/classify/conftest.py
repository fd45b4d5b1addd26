"""One scanner for all tests of this area; building it costs a tenth of a second."""

from __future__ import annotations

import pytest

from terraflow.classify.scan import Scanner


@pytest.fixture(scope="session")
def scanner() -> Scanner:
    return Scanner()
