"""`terraflow key`: the API keys of applications, beside a running plane or without one.

A key is printed once, when it is made; only its digest is kept. Its effect on a running plane is immediate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end
from terraflow.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from terraflow.core.types import Instant
    from terraflow.identity.keys import NewKey
    from terraflow.ports.store import ApiKey
    from terraflow.storage.sqlite.tools import Tools

app = typer.Typer(cls=WholeHelp, no_args_is_help=True, rich_markup_mode=None)

Tenant = Annotated[str, typer.Option(help="The tenant.")]
Application = Annotated[str, typer.Option(help="The application, as bundles name it.")]
AnyTenant = Annotated[str | None, typer.Option(help="The key's tenant; a key of another one is refused.")]
KeyId = Annotated[str, typer.Argument(help="The key's id, as `terraflow key list` shows it.")]
Data = Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")]
Config = Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def create(
    tenant: Tenant, application: Application, data: Data = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Make a key for an application and print it, once."""
    from terraflow.core.types import TENANT_ID

    if TENANT_ID.fullmatch(tenant) is None or not application:
        end("key", "a tenant is named by a-z, 0-9 and -, an application by its id in the bundle", 2)
    made = _made()
    with _opened(config, data) as tools:
        unchecked = _require_known(tools, tenant, application)
        tools.add_key(_stored(made, tenant, application))
    _show(made, tenant, application, as_json)
    if unchecked and not as_json:
        print(f"note: {unchecked}", file=sys.stderr)


def _require_known(tools: Tools, tenant: str, application: str) -> str:
    """End the command if the bundle in force has no such application; else why that could not be looked at, or
    nothing."""
    from terraflow.contracts.verify import BundleRejected, read_unverified

    envelope = tools.active_bundle()
    if envelope is None:
        return f"no bundle is in force yet, so nothing says whether {tenant}/{application} will exist"
    try:
        document = read_unverified(envelope)
    except BundleRejected:
        return "the bundle in force is damaged, so nothing says whether the application exists"
    tenants = [entry.id for entry in document.tenants]
    if tenant not in tenants:
        end("key", f"the bundle in force has no tenant {tenant}; its tenants: {', '.join(tenants) or 'none'}", 1)
    theirs = [entry.id for entry in document.applications if entry.tenant == tenant]
    if application not in theirs:
        known = ", ".join(theirs) or "none"
        end(
            "key",
            f"the bundle in force has no application {application} of tenant {tenant}; its applications: {known}",
            1,
        )
    return ""


@app.command(name="list")
def list_keys(tenant: Tenant, data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """List a tenant's live keys, oldest first; never the keys themselves."""
    from terraflow.evidence.record import rfc3339

    with _opened(config, data) as tools:
        keys = tools.keys(tenant)
    rows = [{"id": k.id, "application": k.application, "created_at": rfc3339(k.created_at)} for k in keys]
    if as_json:
        print(json.dumps({"tenant": tenant, "keys": rows}))
        return
    if not rows:
        print(f"tenant {tenant} has no live key", file=sys.stderr)
        return
    print(f"{'KEY':<20}  {'CREATED':<27}  APPLICATION")
    for row in rows:
        print(f"{row['id']:<20}  {row['created_at']:<27}  {row['application']}")


@app.command()
def revoke(
    key: KeyId, tenant: AnyTenant = None, data: Data = None, config: Config = None, as_json: AsJson = False
) -> None:
    """End a key from now on."""
    with _opened(config, data) as tools:
        held = _live(tools, key, tenant)
        if not tools.revoke_key(held.id, _now()):
            end("key", f"{key} was revoked by somebody else at this moment", 1)
    said = {"revoked": key, "tenant": held.tenant, "application": held.application}
    print(json.dumps(said) if as_json else f"{key} of {held.tenant}/{held.application} is revoked")


@app.command()
def rotate(
    key: KeyId, tenant: AnyTenant = None, data: Data = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Make a new key for a key's application and end the old one, in one step. (For a time in which both hold:
    create, change the application over, revoke.)"""
    made = _made()
    with _opened(config, data) as tools:
        old = _live(tools, key, tenant)
        if not tools.replace_key(_stored(made, old.tenant, old.application), key, _now()):
            end("key", f"{key} was revoked by somebody else at this moment", 1)
    _show(made, old.tenant, old.application, as_json)


def _live(tools: Tools, key: str, tenant: str | None) -> ApiKey:
    """The live key of that id, and of that tenant if one is named. Ends the command if there is none."""
    held = tools.key(key)
    if held is None or tenant not in (None, held.tenant):
        whose = "" if tenant is None else f" of tenant {tenant}"
        end("key", f"there is no live key {key}{whose}; `terraflow key list --tenant T` shows those there are", 1)
    return held


def _made() -> NewKey:
    import secrets

    from terraflow.identity.keys import make_key

    return make_key(secrets.token_urlsafe, secrets.token_hex)


def _stored(made: NewKey, tenant: str, application: str) -> ApiKey:
    from terraflow.ports.store import ApiKey

    return ApiKey(made.id, tenant, application, made.digest, _now())


def _now() -> Instant:
    from terraflow.app.runtime import SystemClock

    return SystemClock().now()


def _show(made: NewKey, tenant: str, application: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"id": made.id, "tenant": tenant, "application": application, "api_key": made.text}))
        return
    print(made.text)
    print(f"{made.id} of {tenant}/{application}. Keep the key: it is not shown again.", file=sys.stderr)


@contextmanager
def _opened(config: Path | None, data: str | None) -> Iterator[Tools]:
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing, open_tools

    try:
        with open_tools(Path(load_settings(config, environment(), data_dir=data).data_dir)) as tools:
            yield tools
    except (BadSettings, DatabaseMissing) as bad:
        end("key", str(bad), 2)
    except (DatabaseUnusable, StoreUnavailable) as trouble:
        end("key", str(trouble), 1)
