"""Every command line that the documentation shows is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from terraflow.cli.main import COMMANDS, application

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = ROOT / "docs" / "reference" / "cli.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:\.venv/bin/)?terraflow [^`]+)`")
_PROGRAM = re.compile(r"(?:^|&& |=|\$\(|/)terraflow (?P<arguments>.*)")


class Shown(NamedTuple):
    """A command line of a page; `whole`: it stands in a block, to be copied and run."""

    page: str
    text: str
    whole: bool


def shown() -> Iterator[Shown]:
    for page in PAGES:
        if page == GENERATED:
            continue
        name, text = str(page.relative_to(ROOT)), page.read_text("utf-8")
        for language, block in _FENCE.findall(text):
            if language in ("sh", "ini", "bash", "console"):
                lines = block.replace("\\\n", " ").splitlines()
                yield from (Shown(name, line.strip(), True) for line in lines for _ in _PROGRAM.findall(line))
        yield from (Shown(name, span, False) for span in _INLINE.findall(_FENCE.sub("", text)))


def arguments_of(line: str) -> list[list[str]]:
    """The arguments of each call of the program in a shell's line: of a call inside `$(…)` too."""
    inner = re.findall(r"\$\(\s*(?:\S*/)?terraflow ([^)]*)\)", line)
    outer = re.sub(r"\$\([^)]*\)", "SUBSTITUTED", line)
    outer = re.sub(r"\s*(?:[|>]|&&).*$", "", outer) if _PROGRAM.match(outer) else outer
    found = [*inner, *(match["arguments"] for match in [_PROGRAM.search(outer)] if match)]
    return [shlex.split(part.replace("…", "x"), comments=True) for part in found]


def check(arguments: list[str], whole: bool) -> None:
    """Raises LookupError, or what the parser raises, for what the program would refuse. A line in a sentence may be
    cut short, so only its names are looked at."""
    command: Any = typer.main.get_command(application(arguments))
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        if name not in command.commands:
            raise LookupError(f"no command {name}")
        command = command.commands[name]
    if whole and not hasattr(command, "commands"):
        command.make_context(command.name, list(arguments))
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for option in (argument for argument in arguments if argument.startswith("--")):
        if option not in known:
            raise LookupError(f"no option {option}")


LINES = sorted(set(shown()))


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.page}: {line.text}")
def test_a_documented_command_line_is_taken(line: Shown) -> None:
    calls = arguments_of(line.text)
    assert calls
    for arguments in calls:
        check(arguments, line.whole)


def test_the_pages_show_every_command() -> None:
    called = {arguments[0] for line in LINES for arguments in arguments_of(line.text) if arguments}
    assert called >= {row.name for row in COMMANDS}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("terraflow key revoke KEY_ID --tenent T", "No such option: --tenent"),
        ("terraflow nothing", "no command nothing"),
        ("terraflow bundle sign rules.yaml", "Missing parameter: key"),
        ('terraflow verify x --key "$(terraflow evidence key --all)"', "No such option: --all"),
    ],
)
def test_a_line_that_the_program_refuses_is_found(line: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        for arguments in arguments_of(line):
            check(arguments, whole=True)


def test_an_option_in_a_sentence_is_looked_at_too() -> None:
    check(["verify", "--previous"], whole=False)
    with pytest.raises(LookupError, match="no option --before"):
        check(["verify", "--before"], whole=False)
