"""`terraflow status`: what a data folder holds, beside a running plane or without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end

if TYPE_CHECKING:
    from terraflow.app.status import Status, TenantState


def command(
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the bundle in force, records and checkpoints, keys, stored answers and budgets of a data folder. Changes
    nothing; exits with 1 if the folder cannot be read."""
    import msgspec

    from terraflow.app.runtime import SystemClock
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.app.status import read_status
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    try:
        settings = load_settings(config, environment(), data_dir=data)
        status = read_status(settings, SystemClock().now())
    except (BadSettings, DatabaseMissing) as bad:
        end("status", str(bad), 2)
    except (DatabaseUnusable, StoreUnavailable) as trouble:
        end("status", str(trouble), 1)
    print(msgspec.json.encode(status).decode() if as_json else "\n".join(_lines(status)))


def _lines(status: Status) -> Iterator[str]:
    running = "a plane runs on it" if status.plane_runs else "no plane runs on it"
    yield f"{status.data_dir}: {running}, {_many(status.open_requests, 'request')} under way"
    for trouble in status.troubles:
        yield f"TROUBLE  {trouble}"
    if status.bundle is not None:
        bundle = status.bundle
        yield f"bundle {bundle.sequence}, issued {bundle.issued}, expires {bundle.expires}"
        yield f"  digest {bundle.digest or 'not verified'}"
        yield from (f"  note: {notice.field} {notice.rule}" for notice in bundle.notices)
    for tenant in status.tenants:
        yield ""
        yield from _tenant(tenant)


def _tenant(tenant: TenantState) -> Iterator[str]:
    from terraflow.core.types import usd

    yield f"tenant {tenant.tenant}"
    root = "" if tenant.root is None else f", root {tenant.root}"
    yield f"  {_many(tenant.records, 'record')}, {tenant.signed} signed{root}"
    yield f"  {_many(tenant.keys, 'live key')}, {_many(tenant.answers, 'stored answer')}"
    if tenant.budgets:
        row = "  {:<14} {:<24} {:<14} {:>12} {:>12} {:>12} {:>12}"
        yield row.format("BUDGET", "OF", "WINDOW", "LIMIT USD", "RESERVED", "POSTED", "LEFT")
        for budget in tenant.budgets:
            limit = "-" if budget.limit_micro_usd is None else usd(budget.limit_micro_usd)
            left = "-" if budget.left_micro_usd is None else usd(budget.left_micro_usd)
            used = usd(budget.reserved_micro_usd), usd(budget.posted_micro_usd)
            yield row.format(budget.level, budget.of, budget.window_key, limit, *used, left)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
