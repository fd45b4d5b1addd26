"""Generated histories against the plain model, and faults that they must catch."""

from __future__ import annotations

from collections import Counter

import pytest

from terraflow.core.reasons import Lookup
from tests.hints.deciding.histories import compare
from tests.hints.deciding.planted import FAULTS, Fault, planted

HISTORIES = 3_000
CAUGHT_WITHIN = 1_500


def test_every_answer_is_the_models() -> None:
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        assert compare(seed, seen) is None
    assert set(seen) == set(Lookup)
    assert min(seen.values()) > HISTORIES / 10, f"a code that hardly occurs is hardly compared: {seen}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_a_planted_fault_is_caught(fault: Fault) -> None:
    with planted(fault) as decide:
        assert any(compare(seed, decide=decide) for seed in range(CAUGHT_WITHIN))


def test_the_sound_lookup_is_back_after_a_fault() -> None:
    with planted(FAULTS[0]):
        pass
    assert compare(0) is None
