"""`terraflow reason`: one code or all of them, for people and for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from terraflow import core
from terraflow.cli.ending import end
from terraflow.core.reasons import PLANNED, REASONS, Reason, Surface

RAISED_BY = Path(core.__file__).with_name("raised_by.json")
WIDTH = 100


def command(
    code: Annotated[str | None, typer.Argument(help="The code, such as CACHE_HIT.", show_default=False)] = None,
    surface: Annotated[
        Surface | None, typer.Option(help="Only this surface's: a few codes stand on two.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every code instead of one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
) -> None:
    """What a reason code means and what to do about it."""
    if (code is None) != every:
        end("reason", "name one code, or ask for --all", 2)
    named = REASONS if code is None else tuple(row for row in REASONS if row.code == code.strip().upper())
    rows = [row for row in named if surface in (None, row.surface)]
    if not rows:
        end("reason", _unknown(code or "", surface), 2)
    raised_by: dict[str, str] = json.loads(RAISED_BY.read_text())
    if as_json:
        print(json.dumps([_as_object(row, raised_by) for row in rows], indent=2, ensure_ascii=False))
    elif every:
        print("\n".join(_table(rows)))
    else:
        print("\n\n".join(_as_text(row, raised_by) for row in rows))


def _as_object(row: Reason, raised_by: dict[str, str]) -> dict[str, object]:
    return {
        "surface": row.surface,
        "code": row.code,
        "status": row.status,
        "kind": row.kind,
        "meaning": row.meaning,
        "action": row.action,
        "retry": row.retry,
        "since": row.since,
        "raised_by": raised_by.get(f"{row.surface}/{row.code}"),
        "second_status": row.second and {"status": row.second.status, "where": row.second.where},
        "note": row.note or None,
    }


def _as_text(row: Reason, raised_by: dict[str, str]) -> str:
    status = "no HTTP status" if row.status is None else str(row.status)
    since = "planned, not built yet" if row.since == PLANNED else f"since {row.since}"
    facts = {
        "Meaning": row.meaning,
        "What to do": row.action,
        "Retry": "yes: the same request may succeed after a wait" if row.retry else "no",
        "Also": row.second and f"{row.second.status or ''} {row.second.where}".strip(),
        "Note": row.note,
        "Seen by": raised_by.get(f"{row.surface}/{row.code}"),
    }
    lines = [
        textwrap.fill(text, WIDTH, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14, break_on_hyphens=False)
        for name, text in facts.items()
        if text
    ]
    return "\n".join([f"{row.code}  ({row.surface}, {status}, {row.kind}, {since})", "", *lines])


def _table(rows: Iterable[Reason]) -> Iterable[str]:
    yield f"{'SURFACE':<16} {'CODE':<41} {'STATUS':<7} {'RETRY':<6} SINCE"
    for row in rows:
        status = "-" if row.status is None else row.status
        yield f"{row.surface:<16} {row.code:<41} {status:<7} {'yes' if row.retry else 'no':<6} {row.since}"


def _unknown(code: str, surface: Surface | None) -> str:
    from difflib import get_close_matches

    wanted = code.strip().upper()
    elsewhere = [row.surface for row in REASONS if row.code == wanted]
    if elsewhere:
        return f"{wanted} is no code of the surface {surface}, but of {' and '.join(elsewhere)}"
    near = get_close_matches(wanted, sorted({row.code for row in REASONS}), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`terraflow reason --all` lists them"
    return f"there is no reason code {code}; {hint}"
