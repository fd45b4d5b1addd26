"""What a command does not need it does not load: help is quick, a plane without hints is without their libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "cryptography", "google", "grpc", "jinja2", "msgspec", "prometheus_client", "tokenizers", "zmq"}
OF_HINTS = {"google", "grpc", "hpack", "jinja2", "tokenizers", "zmq"}


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules that a process has imported once `code` has run."""
    told = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", told, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("serve", "--help"), ("hints", "--help"), ("hints", "serve", "--help")]
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    modules = loaded("from terraflow.cli.main import main; main()", *arguments)
    assert "terraflow.cli.main" in modules
    assert not modules & {*HEAVY, "asyncio"}


def test_a_plane_without_hints_is_without_their_libraries() -> None:
    modules = loaded(
        "import asyncio; from terraflow.app import server; from terraflow.app.fleets import open_fleets;"
        " from terraflow.app.runtime import SystemClock; from terraflow.app.settings import Settings;"
        " asyncio.run(open_fleets(Settings(), SystemClock()))"
    )
    assert "terraflow.app.wiring" in modules
    assert not modules & OF_HINTS
    assert not {name for name in modules if name.startswith(("terraflow.hints.index", "terraflow.hints.live"))}
