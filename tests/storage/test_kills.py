"""kill -9 loses and doubles nothing; the long form is `python -m trust.store_kills`."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from terraflow.ports.store import Settlement
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import open_store
from tests.storage.durability import Acknowledged, problems
from tests.storage.killed_writer import TENANTS
from tests.storage.kills import kill_once, kills
from tests.storage.makers import SetClock, budgets, entry


def test_twenty_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    acknowledged, found = kills(tmp_path / "data", 20, longest_s=0.1, judge_every=5)
    assert found == []
    assert acknowledged > 100


async def test_what_a_kill_left_open_is_found_and_can_be_closed(tmp_path: Path) -> None:
    acknowledged, folder = Acknowledged(), tmp_path / "data"
    for seed in range(30):
        kill_once(folder, seed, acknowledged, 0.05, told_min=1_000)
        store = open_store(folder, clock=SetClock())
        orphans = await store.orphans()
        if orphans:
            break
        await store.close()
    assert 0 < len(orphans) <= 16 * (seed + 1)
    for orphan in orphans:
        (held,) = orphan.open_reservations
        ending = Settlement(held.id, held.amount if held.chargeable else None)
        await store.finish([entry(orphan.request_id, "outcome", tenant=orphan.tenant)], [ending])
    assert await store.orphans() == []
    assert [b.reserved for tenant in TENANTS for b in budgets(store, tenant)] == [0, 0, 0, 0]
    await store.close()
    assert problems(folder, acknowledged) == []


DAMAGE = (
    "DELETE FROM leaf WHERE position = (SELECT max(position) FROM leaf WHERE request_id = ?1)",
    "UPDATE reservation SET posted = posted + 1, state = 'posted' WHERE request_id = ?1",
    "INSERT INTO leaf SELECT (SELECT max(position) + 1 FROM leaf), request_id, application, kind, data, hash "
    "FROM leaf WHERE request_id = ?1 LIMIT 1",
    "UPDATE leaf SET data = x'00' WHERE request_id = ?1",
    "INSERT INTO open_request VALUES (?1, 0)",
)


def test_the_judge_sees_a_lost_a_doubled_and_a_half_settled_request(tmp_path: Path) -> None:
    acknowledged, folder = Acknowledged(), tmp_path / "data"
    kill_once(folder, 2, acknowledged, 0.05, told_min=5_000)
    assert problems(folder, acknowledged) == []
    for number, damage in enumerate(DAMAGE):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        raw = sqlite3.connect(copy / DATABASE)
        raw.execute(damage, (next(iter(acknowledged.done)),))
        raw.commit()
        raw.close()
        assert problems(copy, acknowledged) != [], damage
