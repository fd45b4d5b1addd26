"""docs/clients.md names the versions that the tests run."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "clients.md").read_text()
DRIVEN = {"openai", "anthropic", "langchain-openai", "langchain-anthropic", "instructor", "llm", "llm-anthropic"}


def _pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    found = [re.fullmatch(r"([a-z-]+)==([0-9.]+)", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def test_the_versions_of_python_clients() -> None:
    pins = _pins("clients.in") | {name: pin for name, pin in _pins("dev.in").items() if name in DRIVEN}
    assert set(pins) >= DRIVEN
    assert {name: pin for name, pin in pins.items() if name in DRIVEN and pin not in PAGE} == {}


def test_the_versions_of_clients_for_node() -> None:
    pins = json.loads((ROOT / "tests/clients/node/package.json").read_text())["dependencies"]
    del pins["zod"]
    assert sorted(pins) == ["@anthropic-ai/sdk", "openai"]
    assert {name: pin for name, pin in pins.items() if pin not in PAGE} == {}


def test_the_lock_file_names_no_host() -> None:
    assert "resolved" not in (ROOT / "tests/clients/node/package-lock.json").read_text()
