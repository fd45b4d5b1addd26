"""The entry point: a table of commands, of which only the one that was called is imported.

A module in the table has either `command`, a function that typer can read, or `app`, a `typer.Typer` with
subcommands. Its heavy imports still belong inside its functions, so that `--help` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, NamedTuple

import typer

from terraflow import __version__
from terraflow.cli.whole_help import WholeHelp


class Command(NamedTuple):
    """A row of the table."""

    name: str
    module: str
    summary: str


# fmt: off
COMMANDS = (
    Command("demo",     "terraflow.cli.demo",     "Make the starter workspace and serve it."),
    Command("serve",    "terraflow.cli.serve",    "Serve a plane on a data folder."),
    Command("status",   "terraflow.cli.status",   "Show what a data folder holds: bundle, records, budgets, keys."),
    Command("verify",   "terraflow.cli.verify",   "Verify exported evidence with the log's public key, offline."),
    Command("evidence", "terraflow.cli.evidence", "Export a tenant's log, or print its verifier key."),
    Command("bundle",   "terraflow.cli.bundle",   "Write, sign, check, activate and show bundles."),
    Command("key",      "terraflow.cli.key",      "Make, list, revoke and rotate applications' API keys."),
    Command("backup",   "terraflow.cli.backup",   "Copy a data folder, consistent, while its plane runs."),
    Command("erase",    "terraflow.cli.erase",    "Remove stored answers, by request or by age."),
    Command("hints",    "terraflow.cli.hints",    "Serve, feed, test and explain route hints."),
    Command("reason",   "terraflow.cli.reason",   "What a reason code means and what to do about it."),
)
# fmt: on


def main() -> None:
    """Runs the command line of this process."""
    application(sys.argv[1:])(prog_name="terraflow")


def application(arguments: list[str]) -> typer.Typer:
    """The application, with the command that `arguments` call imported and the others as names for the help."""
    root = typer.Typer(
        cls=WholeHelp,
        help="TerraFlow: a governed gateway for language models.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    root.callback()(_options)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for row in COMMANDS:
        if row.name != called:
            root.command(row.name, help=row.summary)(_unloaded)
            continue
        module = import_module(row.module)
        if hasattr(module, "app"):
            root.add_typer(module.app, name=row.name, help=row.summary)
        else:
            root.command(row.name, help=row.summary)(module.command)
    return root


def _version(wanted: bool) -> None:
    if wanted:
        print(f"terraflow {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _unloaded() -> None:
    raise AssertionError("only the command that is called is run")
