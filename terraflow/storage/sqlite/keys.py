"""API keys and bundles: what both the plane and a tool beside it write, with the statement runner of either."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Protocol

from terraflow.core.types import Instant
from terraflow.ports.store import ApiKey, KeyHolder
from terraflow.storage.sqlite.connection import Database


class Write(Protocol):
    """Runs a named statement inside a transaction."""

    def __call__(self, name: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:
        """The statement's cursor."""
        ...


def find(database: Database, digest: str) -> KeyHolder | None:
    """The holder of the live key with this digest."""
    rows = database.read("find_api_key", (digest,))
    return KeyHolder(*rows[0]) if rows else None


def add(write: Write, key: ApiKey) -> None:
    """Keep a key. sqlite3.IntegrityError if its id or digest is known."""
    write("add_api_key", (key.id, key.tenant, key.application, key.digest, key.created_at))


def revoke(write: Write, key_id: str, at: Instant) -> bool:
    """End a key; False if there is no such live key."""
    return write("revoke_api_key", (at, key_id)).rowcount == 1


def activate_bundle(write: Write, envelope: bytes, sequence: int, at: Instant) -> bool:
    """Make an envelope the active one; False unless its sequence is above the active one's."""
    active = write("active_sequence").fetchone()
    if active is not None and active[0] >= sequence:
        return False
    write("add_bundle", (sequence, envelope, at))
    return True
