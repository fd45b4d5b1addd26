"""The high-water mark: how far each log had got, kept outside the database that holds the logs.

1. A mark is a tenant's latest signed checkpoint, in `<directory>/<tenant>.checkpoint`. It is written after the
   checkpoint is durable in the database, so the database is never behind its mark unless it was put back.
2. A mark is replaced whole: written beside, flushed to the disk, renamed, and the directory flushed.
3. At start every mark's tree must be in the database's: as many leaves or more, and the mark's root at the mark's
   size. An older copy of the database is RolledBack; a log that forked since is RolledBack too.
4. What this cannot see: the marks put back together with the database, or taken away. A checkpoint that an auditor
   keeps elsewhere sees both (`terraflow verify --previous`). So the directory belongs on another volume.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.core.types import TENANT_ID
from terraflow.evidence.checkpoint import open_checkpoint
from terraflow.evidence.merkle import TileMissing
from terraflow.evidence.note import NoteInvalid
from terraflow.evidence.proof import root_at
from terraflow.ports.ledger import Ledger

SUFFIX = ".checkpoint"


class RolledBack(Exception):
    """The database does not contain a tree that this plane has signed: it is an older or another copy."""

    def __init__(self, tenant: str, marked: int, found: int) -> None:
        super().__init__(f"tenant {tenant}: {marked} records were signed, the database agrees with {found} of them")
        self.tenant, self.marked, self.found = tenant, marked, found


class MarkInvalid(Exception):
    """A file among the marks is not a checkpoint that this plane's log key signed."""


def write_mark(directory: Path, tenant: str, checkpoint: bytes) -> None:
    """Keep a published checkpoint as the tenant's mark (rule 2). Raises OSError."""
    if TENANT_ID.fullmatch(tenant) is None:
        raise ValueError("not a tenant's id")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = directory / f".{tenant}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(checkpoint)
        file.flush()
        os.fsync(descriptor)
    beside.replace(directory / f"{tenant}{SUFFIX}")
    _flush_directory(directory)


def check_marks(directory: Path, ledger: Ledger, key: Ed25519PublicKey) -> int:
    """How many marks agree with the database (rule 3); RolledBack or MarkInvalid for the first that does not."""
    marks = sorted(directory.glob(f"*{SUFFIX}"))
    for mark in marks:
        _check(mark, ledger, key)
    return len(marks)


def _check(mark: Path, ledger: Ledger, key: Ed25519PublicKey) -> None:
    tenant = mark.name.removesuffix(SUFFIX)
    try:
        claimed = open_checkpoint(mark.read_bytes(), tenant, key)
    except NoteInvalid as trouble:
        raise MarkInvalid(f"{mark}: {trouble}") from trouble
    note = ledger.checkpoint(tenant)
    try:
        published = 0 if note is None else open_checkpoint(note, tenant, key).size
        if published < claimed.size or ledger.size(tenant) < claimed.size:
            raise RolledBack(tenant, claimed.size, min(published, ledger.size(tenant)))
        found = root_at(claimed.size, lambda level, index: ledger.tile(tenant, level, index))
    except (NoteInvalid, TileMissing) as trouble:
        raise RolledBack(tenant, claimed.size, 0) from trouble
    if found != claimed.root:
        raise RolledBack(tenant, claimed.size, 0)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
