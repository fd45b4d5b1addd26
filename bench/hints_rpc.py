"""What LookupRoute costs over gRPC: our server and grpc.aio, the same service behind both, one core each way.

Run `python -m bench.hints_rpc [--quick]`; it needs `h2load` (Debian: nghttp2-client).

1. The server has the first core for itself, h2load the second. Each of `LOADS` h2loads sends a frame of its own again
   and again: a recorded LookupRoute with a chain of so many blocks, whole in the index of 1 M blocks over 8 replicas.
2. h2load sees HTTP's status only. So every frame is first sent by a grpcio client to both servers, and counts when both
   name the same replicas and tokens with the code PREFIX_MATCH; and it is sent again afterwards.
3. A figure is the best of `ROUNDS`, taken in turns: what else the machine does makes a run slower, never faster. The
   CPU that a call costs the server stands beside it, which hardly depends on that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import uvloop

from bench.process_cost import cost
from bench.processes import HOST, first_json_line, running
from bench.report import number, table
from terraflow.app.runtime import SystemClock
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.http2.heads import Head
from terraflow.hints.http2.server import Server
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Identities
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.rpcs import SERVICE, HintService
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import Entry, Report, Tier

CHAINS = (8, 64, 512)
BLOCKS = 1_000_000
REPLICAS = 8
LOADS, CONNECTIONS, STREAMS = 4, 2, 16
ROUNDS = 3
NEEDED_CALLS = {8: 15_000, 64: 12_000, 512: 4_000}
NEEDED_RATIO = {8: 6.0, 64: 4.0, 512: 2.0}
PATH = f"/{SERVICE}/LookupRoute"
TENANT, MODEL, SCHEME = "acme", "llama-3.1-8b", "xxh3-64"
_RATE = re.compile(r"^finished in .*?, ([0-9.]+) req/s", re.MULTILINE)
_DONE = re.compile(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")


def chain(seed: int) -> list[bytes]:
    """The hashes of one conversation."""
    return [seed.to_bytes(4, "big") + at.to_bytes(4, "big") for at in range(max(CHAINS))]


def filled(blocks: int) -> LiveHints:
    """Live hints over an index of so many entries: of each chain one replica holds all, others half and an eighth."""
    clock = SystemClock()
    index = Index(entries_max=2 * blocks)
    live = LiveHints(Grounds(index=index), clock)
    length, seed = max(CHAINS), 0
    while index.entries() < blocks:
        for offset, share in ((0, 1), (1, 2), (3, 8)):
            held = chain(seed)[: length // share]
            counts = [16 * (at + 1) for at in range(len(held))]
            entry = Entry("", held, counts, Tier.MEMORY)
            name = f"replica-{(seed + offset) % REPLICAS}"
            live.ingest(Report(replica=name, model=MODEL, tenant=TENANT, scheme=SCHEME, entries=(entry,)))
        seed += 1
    return live


def service(blocks: int) -> HintService:
    """The service that both servers have."""
    live = filled(blocks)
    metrics = Metrics(live.index)
    return HintService(live, Identities(), metrics, report_streams_max=1, watch_streams_max=1)


async def serve_ours(blocks: int) -> None:
    """Our server, until it is ended."""
    server = Server(service(blocks).methods())
    print(json.dumps({"port": await server.start(HOST, 0)}), flush=True)
    await asyncio.Event().wait()


async def serve_aio(blocks: int) -> None:
    """grpc.aio's server with the same handler, until it is ended."""
    ours = service(blocks)
    call = Call(PATH, Head(PATH, ()), Peer(HOST), None)

    async def lookup(request: pb.LookupRouteRequest, _: Any) -> pb.LookupRouteResponse:
        return ours.lookup_route(request, call)

    read, write = pb.LookupRouteRequest.FromString, pb.LookupRouteResponse.SerializeToString
    handlers = {"LookupRoute": grpc.unary_unary_rpc_method_handler(lookup, read, write)}
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    await server.wait_for_termination()


SERVERS = {"ours": serve_ours, "aio": serve_aio}


class Serving(NamedTuple):
    """A server's port and process."""

    port: int
    pid: int


class Loaded(NamedTuple):
    """What a run reached, and what a call cost the server."""

    calls_per_s: float
    cpu_us: float


@contextmanager
def serving(name: str, blocks: int, folder: Path) -> Iterator[Serving]:
    """One of SERVERS on the first core."""
    command = [sys.executable, "-m", "bench.hints_rpc", "--serve", name, "--blocks", str(blocks)]
    log = folder / f"{name}.log"
    with running(command, log, {**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        yield Serving(int(first_json_line(process, log, 120.0)["port"]), process.pid)


def requests(length: int) -> list[pb.LookupRouteRequest]:
    """A request for each h2load."""
    draw = random.Random(length)
    return [
        pb.LookupRouteRequest(
            model_id=MODEL,
            tenant_id=TENANT,
            hash_scheme=SCHEME,
            block_hashes=chain(draw.randrange(1_000))[:length],
            block_token_counts=[16] * length,
        )
        for _ in range(LOADS)
    ]


def matched(port: int, asked: pb.LookupRouteRequest) -> list[tuple[str, int]]:
    """What a grpcio client is told, by replica; AssertionError when it is no match.

    Equal matches are ordered by ages, which two processes cannot share: their order is left out.
    """
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        ask = channel.unary_unary(PATH, pb.LookupRouteRequest.SerializeToString, pb.LookupRouteResponse.FromString)
        answer = ask(asked, timeout=30)
    assert answer.reason_code == "PREFIX_MATCH", answer.reason_code
    return sorted((score.replica_id, score.matched_tokens) for score in answer.replica_scores)


def load(served: Serving, length: int, calls: int, folder: Path) -> Loaded:
    """All the h2loads together."""
    processes = []
    before = cost(served.pid).cpu_s
    for at, asked in enumerate(requests(length)):
        body = asked.SerializeToString()
        file = folder / f"{length}-{at}"
        file.write_bytes(struct.pack(">BI", 0, len(body)) + body)
        command = ["taskset", "-c", str(_core(-1)), "h2load", "-n", str(calls // LOADS), "-c", str(CONNECTIONS)]
        command += ["-m", str(STREAMS), "-d", str(file), "-H", "content-type: application/grpc", "-H", "te: trailers"]
        processes.append(
            subprocess.Popen([*command, f"http://{HOST}:{served.port}{PATH}"], stdout=subprocess.PIPE, text=True)
        )
    rate = 0.0
    for process in processes:
        said = process.communicate(timeout=300)[0]
        done, measured = _DONE.search(said), _RATE.search(said)
        assert done is not None and measured is not None, said
        assert tuple(map(int, done.groups()))[1:] == (0, 0, 0), said
        rate += float(measured[1])
    return Loaded(rate, (cost(served.pid).cpu_s - before) / calls * 1e6)


def _core(at: int) -> int:
    return sorted(os.sched_getaffinity(0))[at]


def measure(*, blocks: int = BLOCKS, rounds: int = ROUNDS, quick: bool = False) -> dict[str, dict[str, float]]:
    """By chain length: calls/s and CPU of both servers, and the ratio of the former."""
    if shutil.which("h2load") is None:
        raise SystemExit("h2load is missing: install Debian's nghttp2-client")
    counts = {8: 40_000, 64: 40_000, 512: 16_000}
    runs: dict[tuple[str, int], list[Loaded]] = {(name, length): [] for name in SERVERS for length in CHAINS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving("ours", blocks, folder) as ours, serving("aio", blocks, folder) as aio:
            asked = [one for length in CHAINS for one in requests(length)]
            assert all(matched(ours.port, one) == matched(aio.port, one) for one in asked)
            for _ in range(rounds):
                for length in CHAINS:
                    for server, served in (("ours", ours), ("aio", aio)):
                        calls = counts[length] // (5 if server == "aio" else 1) // (4 if quick else 1)
                        runs[server, length].append(load(served, length, calls, folder))
            assert all(matched(ours.port, one) == matched(aio.port, one) for one in asked)
    return {str(length): figures(runs["ours", length], runs["aio", length]) for length in CHAINS}


def figures(ours: Sequence[Loaded], theirs: Sequence[Loaded]) -> dict[str, float]:
    """The best of both, and how they compare."""
    our_rate, their_rate = (max(run.calls_per_s for run in runs) for runs in (ours, theirs))
    our_cpu, their_cpu = (min(run.cpu_us for run in runs) for runs in (ours, theirs))
    return {
        "calls_per_s": our_rate,
        "cpu_us": our_cpu,
        "aio_calls_per_s": their_rate,
        "aio_cpu_us": their_cpu,
        "ratio": our_rate / their_rate,
    }


def report(found: Mapping[str, Mapping[str, float]]) -> str:
    """The figures as a Markdown table."""
    rows = [
        [
            f"chain of {length} blocks",
            number(found[str(length)]["calls_per_s"]),
            f"≥ {number(NEEDED_CALLS[length])}",
            number(found[str(length)]["cpu_us"]),
            number(found[str(length)]["aio_calls_per_s"]),
            number(found[str(length)]["aio_cpu_us"]),
            f"{found[str(length)]['ratio']:.1f}",
            f"≥ {NEEDED_RATIO[length]:g}",
        ]
        for length in CHAINS
    ]
    heads = ["LookupRoute over gRPC", "calls/s", "to reach", "CPU µs", "grpc.aio calls/s", "CPU µs", "×", "to reach"]
    return table(heads, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    options = parser.parse_args(arguments)
    if options.serve:
        os.sched_setaffinity(0, {_core(0)})
        uvloop.run(SERVERS[options.serve](options.blocks))
        return 0
    found = measure(blocks=options.blocks, rounds=1 if options.quick else ROUNDS, quick=options.quick)
    print(report(found))
    reached = all(
        found[str(length)]["calls_per_s"] >= NEEDED_CALLS[length]
        and found[str(length)]["ratio"] >= NEEDED_RATIO[length]
        for length in CHAINS
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
