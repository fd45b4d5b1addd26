"""`terraflow erase`: remove stored answers, by request or by age, beside a running plane or without one.

Evidence is never erased: it holds no content.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end

if TYPE_CHECKING:
    from terraflow.storage.sqlite.tools import Tools

UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhd])")


def command(
    request: Annotated[str | None, typer.Option(help="The request whose answer goes.")] = None,
    older_than: Annotated[str | None, typer.Option(help="Answers of this age and more, such as 30d or 12h.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Answers whose time is over.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's; else everybody's.")] = None,
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Remove stored answers, by request or by age. Exits with 1 if some of it may still lie in a file."""
    import json

    from terraflow.app.runtime import SystemClock
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.core.types import MICRO, Instant
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing, open_tools

    if [request is not None, older_than is not None, expired].count(True) != 1:
        end("erase", "say which answers: one of --request ID, --older-than AGE, --expired", 2)
    now = SystemClock().now()
    before = None if older_than is None else Instant(now - parse_age_s(older_than) * MICRO)
    try:
        settings = load_settings(config, environment(), data_dir=data)
        with open_tools(Path(settings.data_dir)) as tools:
            erased, gone = tools.erase(now=now, tenant=tenant, request_id=request, before=before)
            why = None if erased.answers else _why_none(tools, request, tenant)
    except (BadSettings, DatabaseMissing) as bad:
        end("erase", str(bad), 2)
    except (DatabaseUnusable, StoreUnavailable) as trouble:
        end("erase", str(trouble), 1)
    if as_json:
        print(json.dumps({"answers": erased.answers, "gone_from_files": gone, "why": why}))
    else:
        print(f"{erased.answers} answer{'s' * (erased.answers != 1)} erased" + (f": {why}" if why else ""))
    if not gone:
        end(
            "erase", "another process reads the database, so the log still holds them: erase again when it has ended", 1
        )


def _why_none(tools: Tools, request: str | None, tenant: str | None) -> str:
    """What an erasure that found nothing should know: most often a mistyped name."""
    if tenant is not None and not tools.knows_tenant(tenant):
        return f"this data folder has no record of a tenant {tenant}"
    if request is None:
        return "none is due" if tenant is None else f"tenant {tenant} has none that is due"
    owner = tools.tenant_of_request(request)
    if owner is None:
        return f"this data folder has no record of a request {request}"
    if tenant not in (None, owner):
        return f"{request} is no request of tenant {tenant}"
    return f"no answer of {request} is stored; it was never kept, its time was over, or it is erased already"


def parse_age_s(text: str) -> int:
    """Seconds of an age such as `30d`, `12h`, `5m`, `10s`. Ends the command for anything else."""
    found = _AGE.fullmatch(text)
    if found is None:
        end("erase", "an age is a number and one of s, m, h, d, such as 30d", 2)
    return int(found["number"]) * UNITS_S[found["unit"]]
