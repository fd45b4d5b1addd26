"""The end of a command that was called wrongly, or that cannot do what was asked: one line on standard error."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer


def end(command: str, said: str, code: int) -> NoReturn:
    """End the command: 2 when it was called wrongly, else 1, unless its help says otherwise."""
    print(f"terraflow {command}: {said}", file=sys.stderr)
    raise typer.Exit(code)


def plain(text: str) -> str:
    """Printable ASCII: a file's name may hold anything, and what is said must not steer the terminal."""
    return "".join(letter if letter == "\n" or " " <= letter <= "~" else ascii(letter)[1:-1] for letter in text)
