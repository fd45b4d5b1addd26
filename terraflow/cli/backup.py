"""`terraflow backup`: a consistent copy of a data folder, beside a running plane or without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terraflow.cli.ending import end
from terraflow.cli.progress import Progress


def command(
    out: Annotated[Path, typer.Option(help="A new or empty folder to write into.")],
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")] = None,
    with_keys: Annotated[bool, typer.Option("--with-keys", help="Private keys too: guard the copy like them.")] = False,
    without_answers: Annotated[
        bool, typer.Option("--without-answers", help="Leave stored answers out, as erasing them would.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Copy a data folder, consistent as of one moment, while its plane runs."""
    import json

    import msgspec

    from terraflow.app.backup import OutNotEmpty, back_up_folder
    from terraflow.app.runtime import SystemClock
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.backup import BackupDamaged
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    try:
        settings = load_settings(config, environment(), data_dir=data)
        with Progress("pages") as progress:
            done = back_up_folder(
                settings, out, SystemClock(), progress, with_keys=with_keys, with_answers=not without_answers
            )
    except BadSettings as bad:
        end("backup", str(bad), 2)
    except (OutNotEmpty, DatabaseMissing) as wrong:
        end("backup", f"{wrong}: name another folder", 2)
    except (BackupDamaged, DatabaseUnusable, StoreUnavailable) as trouble:
        end("backup", str(trouble), 1)
    except OSError as trouble:
        end("backup", f"cannot use {trouble.filename or out}: {trouble.strerror}", 1)
    if as_json:
        print(json.dumps({"out": str(out), **msgspec.to_builtins(done)}))
        return
    records = ", ".join(f"{number} of {tenant}" for tenant, number in done.records.items()) or "none"
    print(f"{len(done.files)} files in {out}. Records: {records}.")
    if not with_keys:
        print("Private keys are not among them: keep a copy of the keys folder in another place (--with-keys).")
    for name in done.elsewhere:
        print(f"Not in the data folder, so not copied: {name}")
    print("To restore it, see docs/operating/backup.md.")
