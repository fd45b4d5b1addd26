"""Erasing stored answers, some at a time, so that neither the loop nor the write lock is held for long."""

from __future__ import annotations

from terraflow.core.types import Instant
from terraflow.storage.sqlite.keys import Write

SOME = 16
"""Rows a transaction: `secure_delete` overwrites each, and an answer may fill hundreds of pages."""


def erase_some(
    write: Write, *, tenant: str | None, request_id: str | None, before: Instant | None, now: Instant
) -> tuple[int, bool]:
    """Erase up to `SOME` answers as `Store.erase` says; how many, and whether there may be more."""
    if request_id is not None:
        return write("erase_request", (request_id, request_id, tenant, tenant)).rowcount, False
    if before is not None:
        erased = write("erase_before", (before, tenant, tenant, SOME)).rowcount
        return erased, erased == SOME
    erased = write("erase_expired", (now, tenant, tenant, SOME)).rowcount
    claims = write("drop_expired_claims", (now, SOME)).rowcount
    return erased, SOME in (erased, claims)
