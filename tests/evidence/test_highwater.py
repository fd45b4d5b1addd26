"""The high-water mark sees a database that was put back."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from terraflow.evidence.highwater import MarkInvalid, RolledBack, check_marks, write_mark
from terraflow.evidence.log import Integrator
from tests.evidence.ledger import SqliteLedger
from tests.evidence.sample import KEY, TENANT, entries

PUBLIC = KEY.public_key()


def _grow(ledger: SqliteLedger, size: int, marks: Path, tenant: str = TENANT, skip: int = 0) -> None:
    ledger.append(tenant, itertools.islice(entries(tenant), ledger.size(tenant) + skip, size + skip))
    signed = Integrator(ledger, KEY).step(tenant)
    assert signed is not None
    write_mark(marks, tenant, signed.checkpoint)


def test_a_database_that_went_on_agrees_with_its_mark(tmp_path: Path) -> None:
    ledger = SqliteLedger()
    assert check_marks(tmp_path / "marks", ledger, PUBLIC) == 0
    _grow(ledger, 10, tmp_path / "marks")
    _grow(ledger, 300, tmp_path / "marks", "bolt")
    assert check_marks(tmp_path / "marks", ledger, PUBLIC) == 2
    ledger.append(TENANT, itertools.islice(entries(), 10, 500))
    Integrator(ledger, KEY).step(TENANT)
    assert check_marks(tmp_path / "marks", ledger, PUBLIC) == 2
    assert sorted(path.name for path in (tmp_path / "marks").iterdir()) == ["acme.checkpoint", "bolt.checkpoint"]


def test_an_older_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    _grow(ledger, 10, tmp_path / "marks")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "older.db")
    _grow(ledger, 25, tmp_path / "marks")
    with pytest.raises(RolledBack) as noticed:
        check_marks(tmp_path / "marks", SqliteLedger(tmp_path / "older.db"), PUBLIC)
    assert (noticed.value.tenant, noticed.value.marked, noticed.value.found) == (TENANT, 25, 10)
    with pytest.raises(RolledBack):
        check_marks(tmp_path / "marks", SqliteLedger(), PUBLIC)


def test_an_older_copy_that_went_on_by_another_way_is_noticed(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    _grow(ledger, 10, tmp_path / "marks")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "older.db")
    _grow(ledger, 25, tmp_path / "marks")
    forked = SqliteLedger(tmp_path / "older.db")
    _grow(forked, 40, tmp_path / "other", skip=100)
    with pytest.raises(RolledBack):
        check_marks(tmp_path / "marks", forked, PUBLIC)


@pytest.mark.parametrize("damage", ["DELETE FROM leaf WHERE idx >= 5", "DELETE FROM tile", "DELETE FROM checkpoint"])
def test_a_database_that_lost_a_part_is_noticed(tmp_path: Path, damage: str) -> None:
    ledger = SqliteLedger()
    _grow(ledger, 10, tmp_path)
    ledger.db.execute(damage)
    with pytest.raises(RolledBack):
        check_marks(tmp_path, ledger, PUBLIC)


def test_a_mark_that_was_changed_or_swapped_is_refused(tmp_path: Path) -> None:
    ledger = SqliteLedger()
    _grow(ledger, 10, tmp_path)
    mark = tmp_path / "acme.checkpoint"
    mark.write_bytes(mark.read_bytes().replace(b"\n10\n", b"\n09\n"))
    with pytest.raises(MarkInvalid):
        check_marks(tmp_path, ledger, PUBLIC)
    mark.unlink()
    _grow(ledger, 10, tmp_path, "bolt")
    (tmp_path / "bolt.checkpoint").rename(mark)
    with pytest.raises(MarkInvalid):
        check_marks(tmp_path, ledger, PUBLIC)


def test_a_tenants_id_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_mark(tmp_path / "marks", "../acme", b"x")
    assert not (tmp_path / "marks").exists()
