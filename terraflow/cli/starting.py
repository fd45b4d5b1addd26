"""Running a plane from a command: what cannot start says why, with a next step, and exits with 1."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from terraflow.app.keys import KeyUnusable
from terraflow.app.server import CannotListen, serve
from terraflow.app.settings import Settings
from terraflow.evidence.highwater import MarkInvalid, RolledBack
from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.folder import FolderInUse
from terraflow.storage.sqlite.schema import DatabaseUnusable

_ROLLED_BACK = (
    "The database is older than what this plane has signed, or another copy. Restore the newest backup, or move the"
    " marks folder away if losing the records in between is accepted, and tell the auditors."
)


def run(command: str, settings: Settings, listening: Callable[[str], None]) -> None:
    """Serve until told to stop."""
    try:
        serve(settings, listening)
    except RolledBack as trouble:
        _fail(command, f"{trouble}. {_ROLLED_BACK}")
    except (CannotListen, FolderInUse, DatabaseUnusable, KeyUnusable, MarkInvalid, StoreUnavailable) as trouble:
        _fail(command, str(trouble))


def _fail(command: str, said: str) -> None:
    print(f"terraflow {command}: {said}", file=sys.stderr)
    raise typer.Exit(1)
