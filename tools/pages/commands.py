"""The reference page of the command line, from the table of commands and what each says with `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from terraflow.cli.main import COMMANDS, application

INTRODUCTION = """# Commands

<!-- Generated from terraflow/cli/ by `make fix`. -->

`make setup` leaves the command at `.venv/bin/terraflow`. A command that fails says why and what to do on standard
error, with `--json`, too; only a verdict, that something is refused or unsound, stands on standard output then, as an
object. It exits with 2 when it was called wrongly, and with 1 when what was asked for did not hold or could not be
done."""

_WIDTH = 100


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join((INTRODUCTION, *_sections(), ""))


def _sections() -> Iterator[str]:
    for row in COMMANDS:
        group: Any = typer.main.get_command(application([row.name]))
        command = group.commands[row.name]
        yield f"\n## terraflow {row.name}\n\n{_help(command, f'terraflow {row.name}')}"
        for name, below in getattr(command, "commands", {}).items():
            yield f"\n### terraflow {row.name} {name}\n\n{_help(below, f'terraflow {row.name} {name}')}"


def _help(command: Any, name: str) -> str:
    context = typer.Context(command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH, color=False)
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines) + "\n```"
