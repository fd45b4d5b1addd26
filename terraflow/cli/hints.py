"""`terraflow hints`: the route-hint service and what belongs to it, one module a subcommand.

All modules of the table are imported when `hints` is called: what is heavy they import inside their functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import typer

from terraflow.cli import hints_replay, hints_serve, hints_sim_engine


class Subcommand(NamedTuple):
    """A row of the table."""

    name: str
    command: Callable[..., None]
    summary: str


# fmt: off
SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand("serve", hints_serve.command, "The route-hint service, alone."),
    Subcommand("replay", hints_replay.command, "A recorded trace through simulated caches, under several policies."),
    Subcommand("sim-engine", hints_sim_engine.command, "An engine without a model, but with a cache and KV events."),
)
# fmt: on

app = typer.Typer(help="Route hints: which replica already holds a prompt's prefix.", no_args_is_help=True)
for row in SUBCOMMANDS:
    app.command(row.name, help=row.summary)(row.command)
