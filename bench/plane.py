"""The plane as anybody starts it: `terraflow demo`, then a bundle signed and activated by its own commands.

1. A data folder is new for each start, on the disk that the bench was given, with the settings' defaults.
2. The bundle is `bench/bench.yaml` with the mock's address in it; the demo's workspace lends its API key and its
   signing key.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from types import MappingProxyType

from ruamel.yaml import YAML

from bench.processes import NotStarted, Server, first_json_line, get, running

TEMPLATE = Path(__file__).with_name("bench.yaml")
START_S = 20.0
_TERRAFLOW = str(Path(sys.executable).with_name("terraflow"))


@contextmanager
def plane(
    upstream_url: str,
    data: Path,
    *,
    program: Sequence[str] = (_TERRAFLOW,),
    settings: Mapping[str, int] = MappingProxyType({}),
    source_of: Callable[[str], str] | None = None,
) -> Iterator[Server]:
    """The plane in front of the mock for the length of the block; `settings` are those that are not left at their
    defaults, `source_of` makes another bundle of the mock's address. Raises NotStarted."""
    log, begun = data.with_suffix(".log"), time.monotonic()
    environment = _environment() | {f"TERRAFLOW_{name.upper()}": str(value) for name, value in settings.items()}
    with running([*program, "demo", "--data", str(data), "--port", "0"], log, environment) as process:
        said = first_json_line(process, log, START_S)
        server = Server(
            name="TerraFlow",
            base_url=said["base_url"],
            pid=process.pid,
            headers=(f"authorization: Bearer {said['api_key']}",),
            started_s=time.monotonic() - begun,
        )
        source, envelope = data.with_suffix(".yaml"), data.with_suffix(".dsse.json")
        source.write_text((source_of or bundle_source)(upstream_url))
        command("bundle", "sign", source, "--key", data / "keys" / "bundle.pem", "--out", envelope)
        command("bundle", "activate", envelope, "--data", data)
        _wait_until_in_force(server)
        yield server


def bundle_source(upstream_url: str) -> str:
    """The bundle's source, in force from an hour ago until tomorrow; as JSON, which is YAML without anchors."""
    now = datetime.now(UTC).replace(microsecond=0)
    issued, expires = now - timedelta(hours=1), now + timedelta(days=1)
    filled = Template(TEMPLATE.read_text()).substitute(
        UPSTREAM=upstream_url, ISSUED=f"{issued:%Y-%m-%dT%H:%M:%SZ}", EXPIRES=f"{expires:%Y-%m-%dT%H:%M:%SZ}"
    )
    return json.dumps(YAML(typ="safe").load(filled), indent=1)


def _wait_until_in_force(server: Server) -> None:
    name, _, value = server.headers[0].partition(": ")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if b'"bench"' in get(server.port, "/v1/models", {name: value})[1]:
            return
        time.sleep(0.05)
    raise NotStarted(f"the bench's bundle was not in force within {START_S} s")


def records(data: Path) -> int:
    """How many leaves the logs of a data folder hold, committed; read beside the running plane."""
    with closing(sqlite3.connect(f"file:{data / 'terraflow.db'}?mode=ro", uri=True)) as database:
        found: int = database.execute("SELECT count(*) FROM leaf").fetchone()[0]
    return found


def command(*words: str | Path) -> str:
    """What a command of the product says. Raises NotStarted."""
    done = subprocess.run(
        [_TERRAFLOW, *map(str, words)], capture_output=True, text=True, env=_environment(), check=False
    )
    if done.returncode:
        raise NotStarted(f"terraflow {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    """The caller's, without settings of a plane (the defaults are measured), with the mock's credential."""
    callers = {name: value for name, value in os.environ.items() if not name.startswith("TERRAFLOW_")}
    return {**callers, "BENCH_UPSTREAM_KEY": "any"}
