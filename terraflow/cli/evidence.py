"""`terraflow evidence`: the log of a tenant, for whoever audits it. Works beside a running plane and without one."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from terraflow.app.settings import Settings

SHOWN_AFTER_S = 2.0

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Tenant = Annotated[str, typer.Option(help="The tenant whose log it is.")]
Data = Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")]
Config = Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")]


@app.command()
def export(
    tenant: Tenant,
    out: Annotated[Path, typer.Option(help="A new or empty folder to write into.")],
    data: Data = None,
    config: Config = None,
) -> None:
    """Write the signed part of a tenant's log into a folder that `terraflow verify` accepts."""
    from terraflow.app.wiring import open_ledger
    from terraflow.evidence.checkpoint import log_key
    from terraflow.evidence.export import ExportExists, NothingToExport, write_export
    from terraflow.evidence.merkle import TileMissing
    from terraflow.evidence.note import NoteInvalid
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    settings = _settings(config, data)
    key = _log_key(settings)
    started, shown = time.monotonic(), False

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - started > SHOWN_AFTER_S:
            shown = True
            print(f"\r{done} of {total} records", end="", file=sys.stderr, flush=True)

    try:
        with open_ledger(settings) as ledger:
            done = write_export(ledger, tenant, out, key, progress)
    except NothingToExport:
        _fail("this workspace has no log of that tenant, or no checkpoint of it yet", 1)
    except ExportExists:
        _fail(f"{out} is not empty: name a new folder", 2)
    except (TileMissing, NoteInvalid) as trouble:
        _fail(f"the log cannot be exported: {trouble}", 1)
    except (DatabaseMissing, DatabaseUnusable, StoreUnavailable, OSError) as trouble:
        _fail(str(trouble), 2)
    if shown:
        print(file=sys.stderr)
    print(f"{done.size} records of {done.origin} in {done.files} files. To verify them:")
    print(f"terraflow verify {out} --key {log_key(tenant, key.public_key())}")


@app.command(name="key")
def print_key(tenant: Tenant, data: Data = None, config: Config = None) -> None:
    """Print the verifier key of a tenant's log, to be given to its auditors."""
    from terraflow.evidence.checkpoint import log_key

    print(log_key(tenant, _log_key(_settings(config, data)).public_key()))


def _settings(config: Path | None, data: str | None) -> Settings:
    from terraflow.app.settings import BadSettings, environment, load_settings

    try:
        return load_settings(config, environment(), data_dir=data)
    except BadSettings as bad:
        _fail(str(bad), 2)


def _log_key(settings: Settings) -> Ed25519PrivateKey:
    from terraflow.app.keys import KeyUnusable, read_private_key
    from terraflow.app.wiring import log_key_path

    try:
        return read_private_key(log_key_path(settings))
    except KeyUnusable as trouble:
        _fail(str(trouble), 2)


def _fail(said: str, code: int) -> NoReturn:
    print(f"terraflow evidence: {said}", file=sys.stderr)
    raise typer.Exit(code)
