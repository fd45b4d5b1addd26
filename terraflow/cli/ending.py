"""The end of a command that was called wrongly, or that cannot do what was asked: one line on standard error."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from terraflow.cli.shown import shown


def end(command: str, said: str, code: int) -> NoReturn:
    """End the command: 2 when it was called wrongly, else 1, unless its help says otherwise."""
    print(f"terraflow {command}: {shown(said)}", file=sys.stderr)
    raise typer.Exit(code)
