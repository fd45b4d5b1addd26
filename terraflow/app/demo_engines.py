"""The simulated engines of `terraflow demo --fleet`: child processes that end with the demo."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

COUNT = 3
START_S = 30.0
STOP_S = 5.0
_RUN = "from terraflow.cli.main import main; main()"


class EngineFailed(Exception):
    """A simulated engine did not start."""


@contextlib.contextmanager
def demo_engines() -> Iterator[list[dict[str, Any]]]:
    """The replicas of a fleet as a bundle writes them, while their engines run. Raises EngineFailed."""
    with contextlib.ExitStack() as stack:
        # A session of their own: Ctrl-C is for the plane, which still needs them to finish what runs.
        started = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603 - our own command, without a shell
                    [sys.executable, "-c", _RUN, "hints", "sim-engine"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
            for _ in range(COUNT)
        ]
        stack.callback(_stop, started)
        yield [_replica(at, process) for at, process in enumerate(started)]


def _replica(at: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if ready else b""
    try:
        said = json.loads(line)
        base_url = said["base_url"]
        return {
            "id": f"engine-{at}",
            "endpoint": base_url,
            "events": said["kv_events"][0],
            "replay": said["kv_replay"][0],
            "metrics": base_url.removesuffix("/v1") + "/metrics",
        }
    except (ValueError, KeyError, TypeError, IndexError):
        raise EngineFailed("a simulated engine did not start: see above") from None


def _stop(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
