"""A group of commands whose help shows each command's summary whole: cut at the terminal's edge, it may say nothing."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SUMMARY_MAX = 1_000


class WholeHelp(TyperGroup):
    """For `typer.Typer(cls=WholeHelp)`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands with their summaries, which go on in further lines."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(SUMMARY_MAX)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
