"""`terraflow evidence`: the log of a tenant, for whoever audits it. Works beside a running plane and without one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end
from terraflow.cli.progress import Progress
from terraflow.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from terraflow.app.settings import Settings

app = typer.Typer(cls=WholeHelp, no_args_is_help=True, rich_markup_mode=None)

Tenant = Annotated[str, typer.Option(help="The tenant whose log it is.")]
Data = Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")]
Config = Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")]


@app.command()
def export(
    tenant: Tenant,
    out: Annotated[Path, typer.Option(help="A new or empty folder to write into.")],
    data: Data = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the signed part of a tenant's log into a folder, and verify what was written. Exits with 1 if it does not
    hold: then the log in the database is damaged."""
    from terraflow.app.keys import KeyUnusable
    from terraflow.app.log_key import log_key_path, require_signer
    from terraflow.app.opening import open_ledger
    from terraflow.evidence.checkpoint import log_key
    from terraflow.evidence.export import ExportExists, NothingToExport, write_export
    from terraflow.evidence.merkle import TileMissing
    from terraflow.evidence.note import NoteInvalid
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    settings = _settings(config, data)
    key = _log_key(settings)
    verifier_key = log_key(tenant, key.public_key())
    try:
        with open_ledger(settings) as ledger, Progress("records written") as progress:
            require_signer(log_key_path(settings), key.public_key(), ledger)
            done = write_export(ledger, tenant, out, key, progress)
    except NothingToExport:
        end("evidence", _nothing(settings, tenant), 1)
    except ExportExists:
        end("evidence", f"{out} is not empty: name a new folder", 2)
    except (TileMissing, NoteInvalid) as trouble:
        end("evidence", f"the log of {tenant} is damaged and cannot be exported: {trouble}", 1)
    except KeyUnusable as trouble:
        end("evidence", str(trouble), 2)
    except OSError as trouble:
        end("evidence", f"cannot write {trouble.filename or out}: {trouble.strerror or trouble}", 2)
    except (DatabaseMissing, DatabaseUnusable, StoreUnavailable) as trouble:
        end("evidence", str(trouble), 2)
    _verify(out, verifier_key)
    if as_json:
        said = {"origin": done.origin, "records": done.size, "files": done.files, "verified": True}
        print(json.dumps({**said, "out": str(out), "key": verifier_key}))
        return
    print(f"{done.size} records of {done.origin} in {done.files} files, verified. To verify them elsewhere:")
    print(f"terraflow verify {out} --key {verifier_key}")


def _verify(out: Path, verifier_key: str) -> None:
    """Read the export as its auditor will. Ends the command if it does not hold."""
    from terraflow.verifier.export import verify_export
    from terraflow.verifier.formats import Refused, parse_key

    try:
        with Progress("records verified") as progress:
            verify_export(out, parse_key(verifier_key), None, os.cpu_count() or 1, progress)
    except Refused as refused:
        end("evidence", f"the log is damaged: what was exported into {out} does not hold: {refused}", 1)


def _nothing(settings: Settings, tenant: str) -> str:
    """Why there is nothing to export, with the tenants that do have a log."""
    from terraflow.app.opening import open_ledger

    with open_ledger(settings) as ledger:
        tenants = list(ledger.tenants())
    if tenant in tenants:
        return f"no record of tenant {tenant} is signed yet: a running plane does it within a second"
    known = f"it has those of {', '.join(tenants)}" if tenants else "it has no log at all"
    return f"this data folder has no log of tenant {tenant}; {known}"


@app.command(name="key")
def print_key(tenant: Tenant, data: Data = None, config: Config = None) -> None:
    """Print the verifier key of a tenant's log, to be given to its auditors."""
    from terraflow.app.keys import KeyUnusable
    from terraflow.app.log_key import log_key_path, require_signer
    from terraflow.app.opening import open_ledger
    from terraflow.core.types import TENANT_ID
    from terraflow.evidence.checkpoint import log_key
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    if TENANT_ID.fullmatch(tenant) is None:
        end("evidence", f"{tenant} is no tenant's id: one has a-z, 0-9 and -", 2)
    settings = _settings(config, data)
    public = _log_key(settings).public_key()
    try:
        with open_ledger(settings) as ledger:
            require_signer(log_key_path(settings), public, ledger)
    except (DatabaseMissing, DatabaseUnusable, KeyUnusable, StoreUnavailable) as trouble:
        end("evidence", str(trouble), 2)
    print(log_key(tenant, public))


def _settings(config: Path | None, data: str | None) -> Settings:
    from terraflow.app.settings import BadSettings, environment, load_settings

    try:
        return load_settings(config, environment(), data_dir=data)
    except BadSettings as bad:
        end("evidence", str(bad), 2)


def _log_key(settings: Settings) -> Ed25519PrivateKey:
    from terraflow.app.keys import KeyUnusable, read_private_key
    from terraflow.app.log_key import log_key_path

    try:
        return read_private_key(log_key_path(settings))
    except KeyUnusable as trouble:
        end("evidence", f"{trouble}; the log's key is made at the plane's first start (--data DIR, or log_key_file)", 2)
