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


PLANTED = [pytest.param(module, fault, id=fault.name) for module, faults in FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("module", "fault"), PLANTED)
def test_a_planted_fault_is_caught(module: str, fault: Fault) -> None:
    with planted(module, fault) as decide:
        assert any(compare(seed, decide=decide) for seed in range(CAUGHT_WITHIN))


def test_the_sound_lookup_is_back_after_a_fault() -> None:
    module, (fault, *_) = next(iter(FAULTS.items()))
    with planted(module, fault):
        pass
    assert compare(0) is None
