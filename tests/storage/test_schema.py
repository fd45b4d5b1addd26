"""The schema, its migrations, and the plans of the named statements."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from terraflow.storage import sqlite as package
from terraflow.storage.sqlite.connection import open_connection
from terraflow.storage.sqlite.queries import SQL, parse_queries
from terraflow.storage.sqlite.schema import ensure_schema, migrations, schema_sql

SCANS = {
    "active_sequence": "backwards along the primary key, one row",
    "active_bundle": "backwards along the primary key, one row",
    "open_batches": "the index holds batches that have not ended only",
    "drop_oldest_answer": "along the index by age, one row",
    "prune_bundles": "backwards along the primary key, as many rows as are kept",
    "tenants": "every tenant is wanted",
    "orphaned_requests": "open_request holds open requests only, and the index on reservations open ones only",
    "count_live_api_keys": "the index holds live keys only",
    "count_open_requests": "it holds open requests only",
    "free_claims_without_request": "the index holds running claims only",
}
"""Statements that may walk a whole table or index, and why that is right."""

SOURCES = Path(package.__file__).parent


def shape(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return [(kind, name, re.sub(r"\s+", "", sql or "")) for kind, name, sql in rows]


def test_the_schema_is_the_sum_of_its_migrations() -> None:
    whole, stepwise = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    whole.executescript(schema_sql())
    for migration in migrations():
        stepwise.executescript(migration)
    assert shape(whole) == shape(stepwise)
    whole.close()
    stepwise.close()


def test_an_older_database_gets_the_migrations_it_lacks(tmp_path: Path) -> None:
    database = open_connection(tmp_path / "a.db")
    ensure_schema(database, migrations()[:1])
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    later = [*migrations(), "CREATE TABLE later (a);", "INSERT INTO later VALUES (1);"]
    ensure_schema(database, later)
    ensure_schema(database, later)
    assert database.execute("SELECT count(*) FROM later").fetchone() == (1,)
    assert database.execute("PRAGMA user_version").fetchone() == (len(later),)
    database.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    database = open_connection(tmp_path / "a.db")
    ensure_schema(database)
    before = shape(database)
    with pytest.raises(sqlite3.Error):
        ensure_schema(database, [*migrations(), "CREATE TABLE later (a); INSERT INTO nowhere VALUES (1);"])
    assert shape(database) == before
    assert database.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    database.close()


def test_every_connection_is_durable_and_overwrites_what_it_deletes(tmp_path: Path) -> None:
    connection = open_connection(tmp_path / "a.db")
    expected = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}
    assert {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in expected} == expected
    connection.close()


@pytest.mark.parametrize("name", sorted(SQL))
def test_every_statement_is_valid_used_and_finds_its_rows_by_an_index(name: str) -> None:
    used = [path for path in SOURCES.glob("*.py") if f'"{name}"' in path.read_text("utf-8")]
    assert used, "no module runs it"
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema_sql())
    parameters = (None,) * SQL[name].count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters)]
    scans = [step for step in plan if step.startswith("SCAN") and "CONSTANT ROW" not in step]
    assert not scans or name in SCANS, scans
    connection.close()


def test_two_statements_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two statements"):
        parse_queries("-- name: a\nSELECT 1;\n\n-- name: a\nSELECT 2;\n")
