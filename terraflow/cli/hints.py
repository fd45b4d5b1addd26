"""`terraflow hints`: the route-hint service and what belongs to it, one module a subcommand.

All modules of the table are imported when `hints` is called: what is heavy they import inside their functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import typer

from terraflow.cli import (
    hints_doctor,
    hints_explain,
    hints_replay,
    hints_serve,
    hints_sim_engine,
    hints_subscribe,
    hints_token,
)
from terraflow.cli.whole_help import WholeHelp


class Subcommand(NamedTuple):
    """A row of the table."""

    name: str
    command: Callable[..., None]
    summary: str


# fmt: off
SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand("serve", hints_serve.command, "The route-hint service, alone."),
    Subcommand("subscribe", hints_subscribe.command, "Beside an engine: tells a hints server what the engine caches."),
    Subcommand("doctor", hints_doctor.command, "Is the service there, well and fed; also lints manifests."),
    Subcommand("explain", hints_explain.command, "Why a lookup is answered as it is: every candidate's factors."),
    Subcommand("token", hints_token.command, "A token that binds a producer or reader to tenants and replicas."),
    Subcommand("replay", hints_replay.command, "A recorded trace through simulated caches, under several policies."),
    Subcommand("sim-engine", hints_sim_engine.command, "An engine without a model, but with a cache and KV events."),
)
# fmt: on

app = typer.Typer(
    cls=WholeHelp, help="Route hints: which replica already holds a prompt's prefix.", no_args_is_help=True
)
for row in SUBCOMMANDS:
    app.command(row.name, help=row.summary)(row.command)
