"""Histories of reservations are linearizable; the long form is `python -m trust.store_histories`."""

from __future__ import annotations

from terraflow.ports.store import Store
from tests.storage.histories import Call, linearizable, record_history
from tests.storage.test_money import LIMIT, RacyStore


async def test_histories_are_linearizable(store: Store) -> None:
    for seed in range(40):
        history = await record_history(store, seed, LIMIT)  # type: ignore[arg-type]
        assert linearizable(history, LIMIT), history


async def test_a_racy_stores_histories_are_rejected() -> None:
    rejected = [not linearizable(await record_history(RacyStore(), seed, LIMIT), LIMIT) for seed in range(40)]
    assert rejected.count(True) >= 20


def test_the_checker_knows_right_from_wrong() -> None:
    one_after_another = [Call(1, 2, 60, True, True), Call(3, 4, 60, True, False), Call(5, 6, -60, False, True)]
    assert linearizable(one_after_another, 100)
    assert linearizable([Call(1, 4, 60, True, True), Call(2, 3, 60, True, False)], 100)
    assert linearizable([Call(1, 4, 60, True, False), Call(2, 3, 60, True, True)], 100)
    assert not linearizable([Call(1, 4, 60, True, True), Call(2, 3, 60, True, True)], 100)
    assert not linearizable([Call(1, 2, 60, True, False), Call(3, 4, 60, True, True)], 100)
    assert not linearizable(
        [Call(1, 2, 100, True, True), Call(3, 4, -40, False, True), Call(5, 6, 40, True, False)], 100
    )
