"""Erasing what callers were answered and what they gave for batches, some at a time, so that neither the loop nor the
write lock is held for long.
"""

from __future__ import annotations

from terraflow.core.types import Instant
from terraflow.storage.sqlite.keys import Write

SOME = 16
"""Rows a transaction: `secure_delete` overwrites each, and an answer may fill hundreds of pages."""
ALL = -1
"""In place of `SOME` where nobody waits: SQLite's LIMIT for none."""


def erase_some(
    write: Write, *, tenant: str | None, request_id: str | None, before: Instant | None, now: Instant, some: int = SOME
) -> tuple[int, bool]:
    """Erase up to `some` of each kind as `Store.erase` says; how many, and whether there may be more."""
    if request_id is not None:
        answers = write("erase_request", (request_id, request_id, tenant, tenant)).rowcount
        lines = write("erase_batch_item_of_request", (request_id, tenant, tenant)).rowcount
        return answers + lines, False
    if before is not None:
        answers = write("erase_before", (before, tenant, tenant, some)).rowcount
        lines = write("erase_batch_items_before", (before, tenant, tenant, some)).rowcount
        metadata = write("erase_batch_metadata_before", (before, tenant, tenant)).rowcount
        write("expire_batch_files_before", (before, tenant, tenant))
        files, more = _expired_files(write, tenant, now, some)
        return answers + lines + metadata + files, more or some in (answers, lines)
    answers = write("erase_expired", (now, tenant, tenant, some)).rowcount
    claims = write("drop_expired_claims", (now, some)).rowcount
    lines = write("erase_batch_items", (now, tenant, tenant, some)).rowcount
    batches = write("erase_batches", (now, tenant, tenant)).rowcount
    files, more = _expired_files(write, tenant, now, some)
    return answers + lines + batches + files, more or some in (answers, claims, lines)


def _expired_files(write: Write, tenant: str | None, now: Instant, some: int) -> tuple[int, bool]:
    pieces = write("erase_batch_file_parts", (now, tenant, tenant, some)).rowcount
    files = write("erase_batch_files", (now, tenant, tenant)).rowcount
    return pieces + files, pieces == some
