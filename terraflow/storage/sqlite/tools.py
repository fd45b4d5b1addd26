"""What a tool may do with a data folder, whether or not a plane runs on it: keys, bundles, erasure, reading the
log.

Blocking, each verb a transaction of its own. The running plane sees its effects at once, since it reads keys,
bundles and answers from the file. Nothing here touches requests or money: those are the plane's.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from terraflow.core.types import Instant
from terraflow.ports.store import ApiKey, BudgetUse, Erased, StoreConflict, StoreUnavailable
from terraflow.storage.sqlite import keys
from terraflow.storage.sqlite.connection import Connect, Database
from terraflow.storage.sqlite.erasure import erase_some
from terraflow.storage.sqlite.folder import DATABASE, make_folder, plane_runs
from terraflow.storage.sqlite.keys import Write
from terraflow.storage.sqlite.ledger import SqliteLedger
from terraflow.storage.sqlite.schema import DatabaseUnusable
from terraflow.storage.sqlite.wal import empty_log, move_log

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a tool waits for the write lock: a busy plane holds it a few milliseconds at a time."""
CUTS_MAX = 40


class DatabaseMissing(Exception):
    """The folder has no database."""


class Tools:
    """A data folder's database in the hands of a tool. Made by `open_tools`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.ledger = SqliteLedger(database.sibling(), self.transact)

    def transact(self, run: Callable[[Write], T]) -> T:
        """One durable transaction. Raises StoreConflict, StoreUnavailable, and what `run` raises."""
        try:
            with self._database.transaction():
                return run(self._database.write)
        except sqlite3.IntegrityError as error:
            raise StoreConflict("the verb contradicts what is stored") from error
        except sqlite3.Error as error:
            raise StoreUnavailable("the database cannot be written") from error

    def add_key(self, key: ApiKey) -> None:
        """Keep a new API key's digest. Raises StoreConflict for an id or a digest used before."""
        self.transact(lambda write: keys.add(write, key))

    def replace_key(self, key: ApiKey, old_id: str, at: Instant) -> bool:
        """Keep a new key and end an old one in one step; False, and nothing changed, without such a live key."""

        def run(write: Write) -> bool:
            if not keys.revoke(write, old_id, at):
                return False
            keys.add(write, key)
            return True

        return self.transact(run)

    def revoke_key(self, key_id: str, at: Instant) -> bool:
        """End a key from now on; False if there is no such live key."""
        return self.transact(lambda write: keys.revoke(write, key_id, at))

    def keys(self, tenant: str) -> Sequence[ApiKey]:
        """A tenant's live keys, oldest first."""
        return [ApiKey(*row) for row in self._database.read("live_api_keys", (tenant,))]

    def key(self, key_id: str) -> ApiKey | None:
        """A live key, of whichever tenant."""
        rows = self._database.read("live_api_key", (key_id,))
        return ApiKey(*rows[0]) if rows else None

    def count_keys(self) -> dict[str, int]:
        """Live keys by tenant."""
        return dict(self._database.read("count_live_api_keys"))

    def count_answers(self, now: Instant) -> dict[str, int]:
        """Stored answers by tenant, those whose time is not over."""
        return dict(self._database.read("count_answers", (now,)))

    def count_open_requests(self) -> int:
        """Requests of all tenants that have begun and have no outcome yet."""
        ((number,),) = self._database.read("count_open_requests")
        return int(number)

    def budgets(self, tenant: str) -> Sequence[BudgetUse]:
        """A tenant's counters, every window that ever was."""
        return [BudgetUse(*row) for row in self._database.read("counters_of_tenant", (tenant,))]

    def knows_tenant(self, tenant: str) -> bool:
        """Whether the tenant ever had a record."""
        return bool(self._database.read("tenant_no", (tenant,)))

    def tenant_of_request(self, request_id: str) -> str | None:
        """Whose request it is; None for one that has no record here."""
        rows = self._database.read("newest_leaf_of_request", (request_id,))
        return rows[0][4] if rows else None

    def active_bundle(self) -> bytes | None:
        """The envelope activated last."""
        rows = self._database.read("active_bundle")
        return rows[0][0] if rows else None

    def active_sequence(self) -> int:
        """The active bundle's sequence number; 0 before the first."""
        rows = self._database.read("active_sequence")
        return rows[0][0] if rows else 0

    def activate_bundle(self, envelope: bytes, sequence: int, at: Instant) -> bool:
        """Make it the active one; False unless its sequence is above the active one's."""
        return self.transact(lambda write: keys.activate_bundle(write, envelope, sequence, at))

    def erase(
        self,
        *,
        now: Instant,
        tenant: str | None = None,
        request_id: str | None = None,
        before: Instant | None = None,
    ) -> tuple[Erased, bool]:
        """As `Store.erase`; the flag says whether nothing erased is left in any file (see `LogState.empty`)."""
        total, more = 0, True
        while more:
            erased, more = self.transact(
                lambda write: erase_some(write, tenant=tenant, request_id=request_id, before=before, now=now)
            )
            total += erased
        return Erased(total), self._emptied() if total else True

    def _emptied(self) -> bool:
        """Cut the log to nothing, holding the write lock only a moment at a time."""
        writer = self._database.writer
        try:
            writer.execute("PRAGMA busy_timeout=50")
            for _ in range(CUTS_MAX):
                move_log(writer)
                if empty_log(writer).empty:
                    return True
                time.sleep(0.05)
        except sqlite3.OperationalError:
            return False
        finally:
            writer.execute(f"PRAGMA busy_timeout={int(PATIENCE_S * 1_000)}")
        return False

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        self._database.close()

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_tools(folder: Path, *, make: bool = False, connect: Connect = sqlite3.connect) -> Tools:
    """A data folder's database, beside a plane or without one; made if absent and `make`. To be closed, or used as
    a context manager.

    Raises DatabaseMissing, DatabaseUnusable, StoreUnavailable.
    """
    path = folder / DATABASE
    try:
        if make:
            make_folder(folder)
        elif not path.exists():
            raise DatabaseMissing(f"there is no TerraFlow database in {folder}")
        database = Database(path, connect=connect, patience_s=PATIENCE_S, guest=plane_runs(folder))
    except OSError as error:
        raise StoreUnavailable(f"cannot use {error.filename or path}: {error.strerror}") from error
    try:
        database.open()
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path} cannot be opened: {error}") from error
    except DatabaseUnusable as error:
        raise DatabaseUnusable(f"{path}: {error}") from error
    return Tools(database)
