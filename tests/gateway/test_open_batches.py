"""What each open batch needs next, and whose item runs next, over no store and no loop."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from terraflow.core.types import Instant
from terraflow.gateway.batches.open_batches import Due, Open, OpenBatches
from terraflow.gateway.running import Presence
from terraflow.ports.batches import Batch, BatchStatus

NOW, WALL, ENDS = 100.0, Instant(5), Instant(9)


def batch(tenant: str, name: str, status: BatchStatus = BatchStatus.IN_PROGRESS) -> Batch:
    return Batch(
        id=f"batch_{tenant}_{name}",
        tenant=tenant,
        application="web",
        key_id="key_1",
        endpoint="/v1/chat/completions",
        input_file=None,
        workload=None,
        data_class=None,
        sensitive_types=(),
        window="24h",
        metadata=b"",
        created_at=Instant(0),
        expires_at=ENDS,
        status=status,
    )


def opened(running_max: int, *named: str) -> OpenBatches:
    """Batches by the names `tenant/batch`, looked at once."""
    found = OpenBatches(running_max)
    for name in named:
        tenant, _, no = name.partition("/")
        found.add(batch(tenant, no), troubled=False)
    assert found.look(found.all(), NOW, WALL) == []
    return found


def served(batches: OpenBatches) -> list[str]:
    """Whose items run next, until no place is free."""
    names: list[str] = []
    while (chosen := batches.next(NOW, WALL)) is not None:
        chosen.live[f"req_{len(names)}"] = Presence()
        names.append(chosen.batch.id.removeprefix("batch_").replace("_", "/"))
    return names


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ({}, Due.TAKE),
        ({"live": {"req_1": Presence()}}, Due.TAKE),
        ({"rest_until": NOW + 1}, Due.NOTHING),
        ({"rest_until": NOW}, Due.TAKE),
        ({"drained": True}, Due.END),
        ({"drained": True, "live": {"req_1": Presence()}}, Due.NOTHING),
        ({"drained": True, "rest_until": NOW + 1}, Due.END),
        ({"batch": batch("a", "b", BatchStatus.CANCELLING)}, Due.END),
        ({"batch": batch("a", "b", BatchStatus.CANCELLING), "live": {"req_1": Presence()}}, Due.NOTHING),
        ({"troubled": True}, Due.SETTLE),
        ({"troubled": True, "live": {"req_1": Presence()}}, Due.SETTLE),
        ({"troubled": True, "drained": True}, Due.SETTLE),
        ({"troubled": True, "rest_until": NOW + 1}, Due.NOTHING),
        ({"engaged": True, "troubled": True}, Due.NOTHING),
    ],
)
def test_what_a_batch_needs(changed: dict[str, object], due: Due) -> None:
    running = Open(batch("a", "b"), troubled=False)
    for name, value in changed.items():
        setattr(running, name, value)
    assert running.due(NOW, WALL) is due


def test_a_batch_whose_time_is_over_takes_nothing_even_before_it_is_looked_at() -> None:
    batches = opened(1, "a/1")
    assert batches.next(NOW, ENDS) is None
    [running] = batches.all()
    assert batches.look([running], NOW, ENDS) == [(running, Due.END)]
    assert batches.look([running], NOW, ENDS) == [], "it is being ended"


def test_tenants_take_turns_and_so_do_their_batches() -> None:
    assert served(opened(7, "a/1", "a/2", "a/3", "b/1", "c/1")) == ["a/1", "b/1", "c/1", "a/2", "b/1", "c/1", "a/3"]


def test_a_free_place_goes_to_the_tenant_with_the_fewest_that_run() -> None:
    batches = opened(4, "a/1")
    assert served(batches) == ["a/1"] * 4
    batches.look([batches.add(batch("b", "1"), troubled=False)], NOW, WALL)
    running = batches.find("batch_a_1")
    assert running is not None
    for _ in range(2):
        batches.freed(running)
    assert served(batches) == ["b/1", "b/1"]


def test_what_rests_loses_no_turn_of_others_and_what_has_ended_is_forgotten() -> None:
    batches = opened(2, "a/1", "b/1")
    running, other = batches.all()
    running.rest(NOW)
    batches.look([running], NOW, WALL)
    assert served(batches) == ["b/1", "b/1"]
    for _ in range(2):
        batches.freed(other)
    other.drained = True
    other.live.clear()
    assert batches.look([other], NOW, WALL) == [(other, Due.END)]
    batches.remove(other)
    assert served(batches) == []
    assert batches.look([running, other], NOW + 60, WALL) == []
    assert (len(batches), len(batches._lines), batches.next(NOW + 60, WALL)) == (1, 1, running)


def test_an_item_costs_as_much_with_thousands_of_batches() -> None:
    def one_ends(batches: OpenBatches) -> float:
        took: list[float] = []
        for _ in range(200):
            running = next(each for each in batches.all() if each.live)
            began = time.perf_counter()
            running.live.popitem()
            batches.freed(running)
            batches.look([running], NOW, WALL)
            chosen = batches.next(NOW, WALL)
            took.append(time.perf_counter() - began)
            assert chosen is not None
            chosen.live["req"] = Presence()
        return sorted(took)[len(took) // 2]

    few, many = (opened(8, *(f"{tenant}/{no}" for tenant in range(tenants) for no in range(8))) for tenants in (9, 900))
    for batches in (few, many):
        assert Counter(served(batches)).total() == 8
    assert one_ends(many) < 10 * one_ends(few)
