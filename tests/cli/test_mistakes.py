"""What an operator gets wrong with the tools: one line that names the file, an exit code, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from terraflow.cli.main import application
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.tools import open_tools

NOBODY = 65_534
TOOLS = (
    ("status",),
    ("key", "list", "--tenant", "acme"),
    ("key", "create", "--tenant", "acme", "--application", "app"),
    ("key", "revoke", "key_0"),
    ("erase", "--expired"),
    ("backup", "--out", "{out}"),
)


def run(arguments: tuple[str, ...], data: Path) -> Result:
    asked = [argument.format(out=data.with_name("out")) for argument in arguments] + ["--data", str(data)]
    done = CliRunner().invoke(application(asked), asked)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@contextmanager
def anybody() -> Iterator[None]:
    """Without root's right to read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("arguments", TOOLS, ids=" ".join)
def test_a_file_that_is_no_database_is_named(arguments: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / DATABASE).write_bytes(b"no database " * 1000)
    done = run(arguments, data)
    assert done.exit_code == 1
    assert str(data / DATABASE) in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("arguments", TOOLS, ids=" ".join)
def test_a_folder_that_may_not_be_read_is_named(arguments: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_tools(data, make=True).close()
    run(arguments, tmp_path / "none")  # what the command imports is imported while it may be
    tmp_path.chmod(0o755)
    data.chmod(0)
    try:
        with anybody():
            done = run(arguments, data)
    finally:
        data.chmod(0o700)
    assert done.exit_code == 1
    assert str(data) in done.stderr and "Permission denied" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


UNANSWERED = (
    ("bundle", "key", "--out", "{taken}"),
    ("bundle", "sign", "{none}", "--key", "{none}"),
    ("bundle", "verify", "{none}", "--source"),
    ("bundle", "activate", "{none}", "--data", "{none}"),
    ("bundle", "show", "{none}"),
    ("verify", "{none}", "--key", "{none}"),
    ("evidence", "export", "--tenant", "acme", "--out", "{none}/out", "--data", "{none}"),
    ("hints", "replay", "{none}"),
    ("reason", "NO_SUCH_CODE"),
    *((*arguments, "--data", "{none}") for arguments in TOOLS),
)


@pytest.mark.parametrize("arguments", UNANSWERED, ids=" ".join)
def test_what_cannot_be_answered_is_told_on_standard_error_with_json_too(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in ("none", "out", "taken")}
    places["taken"].touch()
    asked = [argument.format(**places) for argument in arguments] + ["--json"]
    done = CliRunner().invoke(application(asked), asked)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"terraflow {arguments[0]}"), done.stderr
