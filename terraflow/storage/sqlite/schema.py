"""Making a database, and bringing an older one up to date.

1. `PRAGMA user_version` is the number of migrations applied; `application_id` says that the file is ours.
2. A new file is made from schema.sql, an old one by the migrations it lacks, each in a transaction of its own.
3. A file of another program, or of a newer TerraFlow, is refused and left as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable

APPLICATION_ID = 0x54466C77
"""`TFlw` in ASCII; SQLite keeps it at offset 68 of the file."""


class DatabaseUnusable(Exception):
    """The file is not a TerraFlow database that this version can use; the text says why."""


def _files() -> Traversable:
    return resources.files(__package__)


def schema_sql() -> str:
    """The schema as it stands."""
    return _files().joinpath("schema.sql").read_text("utf-8")


def migrations() -> list[str]:
    """Every migration, oldest first; the first makes a database from nothing."""
    folder = _files().joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [folder.joinpath(name).read_text("utf-8") for name in names]


def ensure_schema(connection: sqlite3.Connection, steps: Sequence[str] | None = None) -> None:
    """Make or migrate the schema; `steps` are other migrations than this version's, all of which are then run.

    Raises DatabaseUnusable (rule 3), sqlite3.Error when the file cannot be used.
    """
    whole = schema_sql() if steps is None else None
    steps = migrations() if steps is None else steps
    version = _version(connection, len(steps))
    if version is None and whole is not None:
        _apply(connection, whole, len(steps))
        return
    for number in range(version or 0, len(steps)):
        _apply(connection, steps[number], number + 1)


def require_schema(connection: sqlite3.Connection) -> None:
    """Raises DatabaseUnusable unless the schema is this version's: a tool does not change it under a plane."""
    latest = len(migrations())
    if _version(connection, latest) != latest:
        raise DatabaseUnusable("a plane of another version runs on the database")


def _version(connection: sqlite3.Connection, latest: int) -> int | None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if objects and application != APPLICATION_ID:
        raise DatabaseUnusable("the file is a database of another program")
    if version > latest:
        raise DatabaseUnusable("the database was written by a newer version of TerraFlow")
    return int(version) if objects else None


def _apply(connection: sqlite3.Connection, script: str, version: int) -> None:
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\nPRAGMA application_id = {APPLICATION_ID};\n"
            f"PRAGMA user_version = {version};\nCOMMIT;"
        )
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
