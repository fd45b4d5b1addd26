"""A thousand slow connections are closed within fifteen seconds, while others are served.

    python -m trust.slow_connections [--count 1000] [--bodies 100]

Callers of seven kinds connect to a running plane and dawdle: they say nothing, or send a byte or a line a second. It
is measured when each of them is cut off, and meanwhile requests are asked one after the other, and health. Callers with
a key that send a body slowly have the 30 s of a body. Beside it runs what must fail the same test: uvicorn as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import body_of
from tests.harness.folder import DataFolder
from tests.harness.line import Line
from tests.harness.plane import ROOT, Plane

CLOSED_S = 15.0
BODY_S = 35.0
"""The 30 s of `body_timeout_s`, and what a busy machine adds."""
HEALTH_S = 0.25
CONTROLS = 28
_HEAD = b"GET /healthz HTTP/1.1\r\nHost: plane\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: plane\r\nContent-Type: application/json\r\n"


class Way(NamedTuple):
    """How to be slow: what is sent at once, and what each second, byte by byte or whole and again."""

    name: str
    begin: bytes
    drip: bytes
    by_byte: bool = False


# fmt: off
WAYS = (
    Way("says nothing",           b"",                                                    b""),
    Way("empty lines",            b"",                                                    b"\r\n"),
    Way("a first line by bytes",  b"",                                                    _HEAD, by_byte=True),
    Way("a header a second",      _HEAD,                                                  b"X: y\r\n"),
    Way("a header that goes on",  _HEAD + b"X: ",                                         b"y"),
    Way("a body without a key",   _POST + b"Content-Length: 1000\r\n\r\n",                b" "),
    Way("chunks without a key",   _POST + b"Transfer-Encoding: chunked\r\n\r\n",          b"1\r\n \r\n"),
)
# fmt: on


async def closed_after(port: int, way: Way, limit_s: float) -> float | None:
    """Seconds until the other end closes on a caller that is slow in this way; None when it does not in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.monotonic()
    dripping = asyncio.create_task(_drip(writer, way))
    try:
        async with asyncio.timeout(limit_s):
            while await reader.read(65_536):
                pass
    except TimeoutError:
        return None
    except ConnectionResetError:
        pass
    finally:
        dripping.cancel()
        writer.transport.abort()
    return time.monotonic() - begun


async def _drip(writer: asyncio.StreamWriter, way: Way) -> None:
    with contextlib.suppress(OSError):
        writer.write(way.begin)
        while way.drip:
            for piece in [bytes((byte,)) for byte in way.drip] if way.by_byte else [way.drip]:
                await asyncio.sleep(1)
                writer.write(piece)
                await writer.drain()


class Served(NamedTuple):
    """What those who are not slow got meanwhile."""

    asked: int
    longest_s: float
    health_longest_s: float
    problems: list[str]


async def serve_others(port: int, api_key: str, ends: asyncio.Event) -> Served:
    """Ask, one after the other on kept connections, until it ends."""
    line, probe = Line(port), Line(port)
    asked, longest_s, health_s, problems = 0, 0.0, 0.0, list[str]()
    while not ends.is_set():
        begun = time.monotonic()
        read = await line.ask(json.dumps(body_of()).encode(), [f"Authorization: Bearer {api_key}"])
        answered = time.monotonic()
        health = await probe.get("/healthz", [])
        asked, longest_s = asked + 1, max(longest_s, answered - begun)
        health_s = max(health_s, time.monotonic() - answered)
        if read.status != 200 or health.status != 200:
            problems.append(f"others were answered {read.status} and {health.status}")
        await asyncio.sleep(0.01)
    line.close()
    probe.close()
    return Served(asked, longest_s, health_s, problems)


async def closings(port: int, ways: Sequence[Way], count: int, limit_s: float) -> dict[str, list[float | None]]:
    """By way, when each of `count` connections in all was closed. They connect over a second."""

    async def one(number: int) -> float | None:
        await asyncio.sleep(number / count)
        return await closed_after(port, ways[number % len(ways)], limit_s)

    found = await asyncio.gather(*(one(number) for number in range(count)))
    return {way.name: found[at :: len(ways)] for at, way in enumerate(ways)}


def judge(found: dict[str, list[float | None]], limit_s: float) -> list[str]:
    """What was not closed in time."""
    return [
        f"{name}: {late} of {len(times)} were not closed within {limit_s:g} s"
        for name, times in found.items()
        if (late := sum(took is None or took > limit_s for took in times))
    ]


@contextlib.contextmanager
def bare_uvicorn() -> Iterator[int]:
    """The port of uvicorn with its own defaults, in front of an application that reads the body and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        command = [sys.executable, "-m", "uvicorn", "trust.slow_connections:application", "--log-level", "error"]
        command += ["--fd", str(bound.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[bound.fileno()])
        try:
            yield bound.getsockname()[1]
        finally:
            process.terminate()
            process.wait(10)


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An ASGI application."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


async def prove(plane: Plane, api_key: str, count: int, bodies: int) -> tuple[list[str], list[str]]:
    """What was found, and every problem."""
    port = urlsplit(plane.base_url).port
    assert port is not None
    keyed = Way(
        "a body with a key", _POST + f"Authorization: Bearer {api_key}\r\nContent-Length: 1000\r\n\r\n".encode(), b" "
    )
    ends = asyncio.Event()
    others = asyncio.create_task(serve_others(port, api_key, ends))
    waiting = asyncio.create_task(closings(port, [keyed], bodies, BODY_S + 10)) if bodies else None
    found = await closings(port, WAYS, count, CLOSED_S + 10)
    problems = judge(found, CLOSED_S)
    if waiting is not None:
        found |= (late := await waiting)
        problems += judge(late, BODY_S)
    ends.set()
    served = await others
    problems += served.problems[:3]
    if served.health_longest_s > HEALTH_S:
        problems.append(f"health took {served.health_longest_s:.3f} s")
    said = []
    for name, times in found.items():
        closed = [took for took in times if took is not None]
        said.append(f"{name}: {len(closed)} of {len(times)} closed, the last after {max(closed, default=0):.1f} s")
    said.append(
        f"meanwhile {served.asked} requests were answered, the slowest in {served.longest_s * 1000:.0f} ms; health in"
        f" {served.health_longest_s * 1000:.0f} ms"
    )
    return said, problems


async def _run(count: int, bodies: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = DataFolder(Path(name) / "data")
        folder.activate(bundle.document(purpose("plain", sim("one"))))
        api_key = folder.issue_key()
        with Plane(folder, access_log=False) as plane, bare_uvicorn() as control_port:
            control = asyncio.create_task(closings(control_port, WAYS, CONTROLS, CLOSED_S))
            said, problems = await prove(plane, api_key, count, bodies)
            caught = judge(await control, CLOSED_S)
    print("\n".join(said))
    print("\n".join(["uvicorn as it is:", *caught]))
    if len(caught) < len(WAYS):
        problems.append("uvicorn as it is was not caught in every way")
    print("\n".join(problems))
    return 1 if problems else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--bodies", type=int, default=100)
    options = parser.parse_args(arguments)
    return asyncio.run(_run(options.count, options.bodies))


if __name__ == "__main__":
    sys.exit(main())
