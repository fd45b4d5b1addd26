"""The few statistics of the bench, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import Any


def percentile(values: Sequence[float], rank: float) -> float:
    """The smallest value that at least `rank` per cent of `values` do not exceed (nearest rank); 0.0 of none.

    Nearest rank gives a value that was measured, never one in between.
    """
    if not 0 < rank <= 100:
        raise ValueError("a rank is above 0 and at most 100")
    if not values:
        return 0.0
    ordered = sorted(values)
    return float(ordered[ceil(len(ordered) * rank / 100) - 1])


def middle(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result for several rounds of the same case: the median of each number, the sum of errors and requests.

    The rounds have the same keys. Texts and lists are the first round's that is not empty; mappings merge alike.
    """
    if not rounds:
        raise ValueError("no rounds")
    result: dict[str, Any] = {}
    for key in rounds[0]:
        values = [each[key] for each in rounds]
        if isinstance(values[0], dict):
            same_keys = {name for value in values for name in value}
            filled = [{name: value.get(name, 0) for name in same_keys} for value in values]
            result[key] = middle(filled) if key != "statuses" else _sums(filled)
        elif isinstance(values[0], bool) or not isinstance(values[0], int | float):
            result[key] = next((value for value in values if value), values[0])
        else:
            result[key] = sum(values) if key in SUMMED else median(values)
    return result


SUMMED = frozenset({"errors", "requests", "reconnects", "chunks"})


def _sums(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(each[name] for each in counts) for name in sorted(counts[0])}


def growth(samples: Sequence[float]) -> float:
    """By what share a series grew over its second half: the median of its last tenth against the median of the
    tenth that follows its middle. The first half is left out because caches and pools fill there. Raises KeyError
    of fewer than twenty samples: that is not measured."""
    if len(samples) < 20:
        raise KeyError("samples")
    tenth = len(samples) // 10
    half = len(samples) // 2
    start = median(samples[half : half + tenth])
    return (median(samples[-tenth:]) - start) / start
