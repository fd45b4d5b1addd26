"""How long the upstream's connection lives after the client has gone.

1. A trial opens a stream, reads until chunks flow, hangs up, and asks the mock when its reader left. Both
   instants are on CLOCK_MONOTONIC, which the processes share.
2. Each trial's request carries a mark in its `user` field, which every proxy here passes on, so that a stream that
   is closed late is never taken for the next trial's.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from bench.cases import ENDLESS
from bench.load import Spec, request_bytes
from bench.processes import HOST, Server, get
from bench.stats import percentile

WAIT_S = 2.0
CHUNKS_BEFORE_LEAVING = 5


def leaving(server: Server, mock: Server, trials: int) -> dict[str, Any]:
    """`p50_ms` and `worst_ms` over the trials; one that was not closed within the wait counts as the wait."""
    after_ms = [_trial(server, mock, f"trial-{number}-of-{server.name}") for number in range(trials)]
    closed = [each for each in after_ms if each is not None]
    counted = [WAIT_S * 1000 if each is None else each for each in after_ms]
    return {
        "trials": trials,
        "closed": len(closed),
        "waited_ms": WAIT_S * 1000,
        "p50_ms": percentile(counted, 50),
        "worst_ms": max(counted),
    }


def _trial(server: Server, mock: Server, mark: str) -> float | None:
    url = f"{server.base_url}/chat/completions"
    body = json.dumps({**json.loads(ENDLESS.body), "user": mark})
    request = request_bytes(Spec(url=url, headers=server.headers, body=body, connections=1, seconds=0))
    with socket.create_connection((HOST, server.port), timeout=10) as client:
        client.sendall(request)
        received = b""
        while received.count(b"data:") < CHUNKS_BEFORE_LEAVING:
            piece = client.recv(65_536)
            if not piece:
                raise ConnectionError(f"{server.name} closed the stream: {received[:600]!r}")
            received += piece
        gone_ns = time.monotonic_ns()
    while time.monotonic_ns() - gone_ns < WAIT_S * 1e9:
        for left in json.loads(get(mock.port, "/stats")[1])["left"]:
            if left["user"] == mark:
                return float((left["at_ns"] - gone_ns) / 1e6)
        time.sleep(0.002)
    return None
