"""Running a plane from a command: what cannot start says why in one line, with a next step, and exits with 1."""

from __future__ import annotations

from collections.abc import Callable

from terraflow.app.keys import KeyUnusable
from terraflow.app.log_key import log_key_path
from terraflow.app.opening import CannotStart
from terraflow.app.server import CannotListen, serve
from terraflow.app.settings import Settings
from terraflow.cli.ending import end
from terraflow.evidence.highwater import MarkInvalid, RolledBack
from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.folder import FolderInUse

_ROLLED_BACK = (
    "The database is older than what this plane has signed, or another copy. Restore the newest backup, or move the"
    " marks folder away if losing the records in between is accepted, and tell the auditors."
)


def run(command: str, settings: Settings, listening: Callable[[str], None]) -> None:
    """Serve until told to stop."""
    try:
        serve(settings, listening)
    except RolledBack as trouble:
        end(command, f"{trouble}. {_ROLLED_BACK}", 1)
    except MarkInvalid as trouble:
        key = log_key_path(settings)
        end(command, f"{trouble}: {key} did not sign it. Put the key back that did; see docs/evidence.md", 1)
    except (CannotListen, CannotStart, FolderInUse, KeyUnusable, StoreUnavailable) as trouble:
        end(command, str(trouble), 1)
