"""How long one caller's worst request keeps everybody else waiting: health's slowest answer while it is worked on.

Run `python -m bench.stalls`. The plane is the demo's, in a process of its own; each case is one request, sent three
times, while health is asked again and again on a connection of its own. The promise is 250 ms.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.classify import MEGABYTE, filled, hostile
from bench.processes import HOST, first_json_line, running

ROUNDS = 3
PROMISED_MS = 250.0
MESSAGE = {"role": "user", "content": "x"}
_TERRAFLOW = str(Path(sys.executable).with_name("terraflow"))


def asking(content: Any, **fields: Any) -> bytes:
    """The body of a chat request."""
    return json.dumps({"model": "bench", "messages": [{"role": "user", "content": content}], **fields}).encode()


def _archives() -> str:
    draw = random.Random(5)
    packed = (gzip.compress(draw.randbytes(8) + b"a" * 65_000) for _ in range(7_000))
    return " ".join(base64.b64encode(each).decode() for each in packed)


def _ladder(steps: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"a0": {"type": "integer"}}
    for step in range(1, steps + 1):
        defs[f"a{step}"] = {"anyOf": [{"$ref": f"#/$defs/a{step - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/a{steps}"}


CROWD = 16
"""Callers of the cases that several send at once."""


def crowds() -> Iterator[tuple[str, bytes]]:
    """Bodies that `CROWD` callers send at once."""
    yield "cards that fail", asking(hostile(MEGABYTE - 64)["cards that fail"])
    yield "as many objects as pass", asking("x")[:-1] + b',"x":[' + b'{"a":1},' * 33_000 + b"1]}"


def cases() -> Iterator[tuple[str, bytes]]:
    """A name and a body a line."""
    room = MEGABYTE - 64
    start, end = asking("@").split(b"@")
    yield (
        "8 MiB of small objects",
        asking("x", metadata=None)[:-1] + b',"x":[' + b'{"a":1},' * (MEGABYTE - 100) + b"1]}",
    )
    yield "as many objects as pass", asking("x")[:-1] + b',"x":[' + b'{"a":1},' * 33_000 + b"1]}"
    yield "as many strings as pass", asking("x")[:-1] + b',"x":[' + b'"ab1",' * 99_000 + b'"x"]}'
    yield (
        "other strings, as many",
        json.dumps({"model": "bench", "messages": [MESSAGE], "x": [f"é{i}" for i in range(90_000)]}).encode(),
    )
    messages = [{"role": "user", "content": f"line {i}"} for i in range(4_000)]
    yield "4 000 messages", json.dumps({"model": "bench", "messages": messages}).encode()
    yield (
        "an 8 MB image",
        asking([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8_000_000}}]),
    )
    yield "7 000 archives", asking(_archives()[:room])
    for name, text in hostile(room).items():
        yield name, asking(filled(text, room) if text.isascii() else text[: room // 3])
    mixed = "4111111111111112 \\u0034%31&#49; NDExMTExMTExMTExMTExMQ== =41 34 35 36 37 38 39 40 41 42 43 44, "
    yield "of everything", asking(filled(mixed, room))
    halves = filled(mixed, room // 2)
    yield (
        "of everything, in two messages",
        json.dumps(
            {"model": "bench", "messages": [{"role": "user", "content": c} for c in (halves, halves[1:])]}
        ).encode(),
    )
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": _ladder(32)}}
    yield "a ladder of a schema", asking("x", model="starter-extract", response_format=schema)
    yield "(nothing)", start + b"x" + end


class Plane:
    """The running demo, as two callers see it."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self._port = int(base_url.rsplit(":", 1)[1].split("/")[0])
        self._headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}

    def ask(self, body: bytes) -> str:
        """Status and code of a chat request."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", body, self._headers)
            response = connection.getresponse()
            response.read()
            return f"{response.status} {response.getheader('x-terraflow-reason') or ''}".strip()
        except OSError as error:
            return type(error).__name__
        finally:
            connection.close()

    def slowest_health_ms(self, until: threading.Event) -> float:
        """The longest that one question took, until the event is set."""
        connection, slowest_s = http.client.HTTPConnection(HOST, self._port, timeout=60), 0.0
        while not until.is_set():
            begun = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            slowest_s = max(slowest_s, time.perf_counter() - begun)
            until.wait(0.001)
        connection.close()
        return slowest_s * 1e3


def measure(plane: Plane, body: bytes, callers: int = 1) -> tuple[float, float, str]:
    """Health's slowest answer, the time until all callers had theirs, both in ms, and what the last one got."""
    said: list[str] = []
    done = threading.Event()

    def ask() -> None:
        said.append(plane.ask(body))
        if len(said) == callers:
            done.set()

    threads, begun = [threading.Thread(target=ask) for _ in range(callers)], time.perf_counter()
    for thread in threads:
        thread.start()
    slowest_ms = plane.slowest_health_ms(done)
    for thread in threads:
        thread.join()
    return slowest_ms, (time.perf_counter() - begun) * 1e3, said[-1]


def line(plane: Plane, case: str, body: bytes, callers: int, rounds: int) -> float:
    """Measure a case and print its line; health's slowest answer in ms."""
    measured = [measure(plane, body, callers) for _ in range(rounds)]
    stall_ms = max(each[0] for each in measured)
    what = f"{case:32} {len(body):>9} bytes × {callers:<2}"
    print(f"{what}  health {stall_ms:7.1f} ms  request {measured[0][1]:8.1f} ms  {measured[0][2]}", flush=True)
    return stall_ms


def main() -> int:
    """The table; 1 if the promise is broken."""
    with tempfile.TemporaryDirectory(prefix="stalls-") as name:
        data = Path(name) / "data"
        command = [_TERRAFLOW, "demo", "--bench", "--data", str(data), "--port", "0"]
        with running(command, data.with_suffix(".log"), os.environ) as process:
            opened = first_json_line(process, data.with_suffix(".log"), 20.0)
            plane = Plane(opened["base_url"], opened["api_key"])
            worst = max(line(plane, case, body, 1, ROUNDS) for case, body in cases())
            worst = max(worst, *(line(plane, case, body, CROWD, 1) for case, body in crowds()))
    print(f"the worst: {worst:.1f} ms; promised: {PROMISED_MS:.0f} ms")
    return int(worst > PROMISED_MS)


if __name__ == "__main__":
    sys.exit(main())
