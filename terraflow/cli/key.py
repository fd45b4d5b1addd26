"""`terraflow key`: the API keys of applications, beside a running plane or without one.

A key is printed once, when it is made; only its digest is kept. Its effect on a running plane is immediate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from terraflow.core.types import Instant
    from terraflow.identity.keys import NewKey
    from terraflow.ports.store import ApiKey
    from terraflow.storage.sqlite.tools import Tools

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Tenant = Annotated[str, typer.Option(help="The tenant.")]
Application = Annotated[str, typer.Option(help="The application, as bundles name it.")]
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
        _fail("a tenant is named by a-z, 0-9 and -, an application by its id in the bundle", 2)
    made = _made()
    with _opened(config, data) as tools:
        tools.add_key(_stored(made, tenant, application))
    _show(made, tenant, application, as_json)


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
    for row in rows:
        print(f"{row['id']}  {row['created_at']}  {row['application']}")
    if not rows:
        print(f"tenant {tenant} has no live key", file=sys.stderr)


@app.command()
def revoke(key: KeyId, data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """End a key from now on."""
    with _opened(config, data) as tools:
        if not tools.revoke_key(key, _now()):
            _fail(f"there is no live key {key}; `terraflow key list` shows those there are", 1)
    print(json.dumps({"revoked": key}) if as_json else f"{key} is revoked")


@app.command()
def rotate(key: KeyId, tenant: Tenant, data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Make a new key for a key's application and end the old one, in one step. (For a time in which both hold:
    create, change the application over, revoke.)"""
    made = _made()
    with _opened(config, data) as tools:
        old = next((held for held in tools.keys(tenant) if held.id == key), None)
        if old is None or not tools.replace_key(_stored(made, tenant, old.application), key, _now()):
            _fail(f"tenant {tenant} has no live key {key}; `terraflow key list` shows those there are", 1)
    _show(made, tenant, old.application, as_json)


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
        _fail(str(bad), 2)
    except (DatabaseUnusable, StoreUnavailable) as trouble:
        _fail(str(trouble), 1)


def _fail(said: str, code: int) -> NoReturn:
    print(f"terraflow key: {said}", file=sys.stderr)
    raise typer.Exit(code)
