"""The load generator: a closed loop of callers, each sending its next request when its last is answered.

1. It runs in its own process: `python -m bench.load` reads a `Spec` as JSON from standard input and prints one
   JSON document at its end. It stops by itself: after `seconds` or `count`, whichever comes first, and `grace_s`
   later whatever is still unanswered.
2. A warm-up on the same connections comes first and is in no figure.
3. CPU and memory of the processes named by `processes` are read at the first and last instant of the measured
   phase; the generator's own CPU is among the results, so that a generator at its limit is seen, and so is what
   everything else on the machine took, so that a noisy run is seen.
4. A request counts as good only with the status expected and, when streamed, all its chunks and a closing
   `[DONE]`; everything else is an error, and the first one's bytes are kept for the report.
Instants are on CLOCK_MONOTONIC, durations in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Self
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop

from bench.process_cost import Cost, busy_s, cost
from bench.stats import percentile

_NS_IN_MS = 1e6
MEMORY_SAMPLES_MAX = 10_000


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What to send, how long and how many at once. `processes` maps a name to a pid."""

    url: str
    headers: tuple[str, ...]
    body: str
    connections: int
    seconds: float
    count: int = 0
    warmup_s: float = 1.0
    grace_s: float = 30.0
    expect: int = 200
    chunks: int = 0
    sample_memory_s: float = 0.0
    processes: dict[str, int] = {}


class Phase:
    """One closed loop over all callers: who may still send, and what came of it."""

    def __init__(self, spec: Spec, seconds: float, count: int) -> None:
        self.spec = spec
        self.seconds = seconds
        self.left = count if count else sys.maxsize
        self.durations_ns: list[int] = []
        self.first_byte_ns: list[int] = []
        self.statuses: dict[int, int] = {}
        self.chunks = 0
        self.errors = 0
        self.first_error = ""
        self.reconnects = 0
        self.over = asyncio.Event()
        self.running = 0
        self.started_ns = 0
        self.ended_ns = 0
        self._deadline_ns = 0

    def start(self, callers: list[Caller]) -> None:
        """Send every caller off."""
        self.running = len(callers)
        self.started_ns = time.monotonic_ns()
        self._deadline_ns = self.started_ns + int(self.seconds * 1e9)
        for caller in callers:
            caller.join(self)

    def take(self, now_ns: int) -> bool:
        """Whether another request may go out now."""
        if self.left <= 0 or now_ns >= self._deadline_ns:
            return False
        self.left -= 1
        return True

    async def wait(self) -> None:
        """Return when all is answered; what is not by the end of grace counts as an error."""
        try:
            async with asyncio.timeout(self.seconds + self.spec.grace_s):
                await self.over.wait()
        except TimeoutError:
            self.ended_ns = time.monotonic_ns()
            self.fail(f"{self.running} unanswered after {self.spec.grace_s} s of grace")
            self.errors += self.running - 1

    def leave(self) -> None:
        """A caller has nothing more to send."""
        self.running -= 1
        if self.running == 0:
            self.ended_ns = time.monotonic_ns()
            self.over.set()

    def fail(self, what: str) -> None:
        """Count an error; the first one is kept."""
        self.errors += 1
        if not self.first_error:
            self.first_error = what


class Caller(asyncio.Protocol):
    """One keep-alive connection with at most one request in flight."""

    def __init__(self, request: bytes, host: str, port: int) -> None:
        self._request = request
        self._address = (host, port)
        self._phase: Phase | None = None
        self._transport: asyncio.Transport | None = None
        self._closed_politely = False
        self._sent_ns = 0
        self._fresh()

    def _fresh(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._first_ns = 0
        self._events = 0
        self._tail = b""
        self._kept = b""

    async def connect(self) -> Self:
        """Open the connection; uvloop sets TCP_NODELAY itself."""
        await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def join(self, phase: Phase) -> None:
        """Take part in a phase from now on."""
        self._phase = phase
        self._next(time.monotonic_ns())

    def _next(self, now_ns: int) -> None:
        assert self._phase is not None
        if not self._phase.take(now_ns):
            phase, self._phase = self._phase, None
            phase.leave()
            return
        self._sent_ns = now_ns
        if self._transport is None:
            self._reconnection = asyncio.ensure_future(self._reconnect())
        else:
            self._transport.write(self._request)

    async def _reconnect(self) -> None:
        phase = self._phase
        assert phase is not None
        phase.reconnects += 1
        self._fresh()
        try:
            await self.connect()
        except OSError as error:
            phase.fail(f"no connection: {error.strerror}")
            await asyncio.sleep(0.05)
            self._next(time.monotonic_ns())
            return
        assert self._transport is not None
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        """A request in flight is lost with it, unless the server had said that it would close."""
        self._transport = None
        politely, self._closed_politely = self._closed_politely, False
        if self._phase is not None:
            if not politely:
                self._phase.fail("the connection closed before the answer was whole")
            self._next(time.monotonic_ns())

    def close(self) -> None:
        """Hang up."""
        self._phase = None
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Feeds the parser."""
        if self._phase is not None and not self._phase.first_error and len(self._kept) < 600:
            self._kept += data[:600]
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Called by the parser. Events end with a blank line, which may straddle two reads."""
        if self._phase is None or not self._phase.spec.chunks:
            return
        if not self._first_ns and b"data:" in body:
            self._first_ns = time.monotonic_ns()
        self._events += body.count(b"\n\n") + (self._tail.endswith(b"\n") and body.startswith(b"\n"))
        self._tail = (self._tail + body)[-16:]

    def on_message_complete(self) -> None:
        """Called by the parser: judge the answer, then send the next request."""
        phase, now_ns = self._phase, time.monotonic_ns()
        if phase is None:
            return
        status = self._parser.get_status_code()
        phase.statuses[status] = phase.statuses.get(status, 0) + 1
        phase.durations_ns.append(now_ns - self._sent_ns)
        wanted = phase.spec.chunks
        if status != phase.spec.expect:
            phase.fail(self._kept.decode("latin-1"))
        elif wanted:
            # Content chunks, and at least the finish and [DONE] beside them.
            if self._events < wanted + 2 or not self._tail.endswith(b"data: [DONE]\n\n"):
                phase.fail(f"a stream of {self._events} events, ending in {self._tail!r}")
            phase.first_byte_ns.append(self._first_ns - self._sent_ns)
            phase.chunks += wanted
        self._first_ns, self._events, self._tail, self._kept = 0, 0, b"", b""
        if self._transport is not None and not self._parser.should_keep_alive():
            self._closed_politely = True
            self._transport.abort()
            return
        self._next(now_ns)


def request_bytes(spec: Spec) -> bytes:
    """The request as every caller sends it."""
    url, body = urlsplit(spec.url), spec.body.encode()
    lines = [f"POST {url.path} HTTP/1.1", f"host: {url.netloc}", "content-type: application/json", *spec.headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


class Reading(msgspec.Struct, frozen=True):
    """CPU at one instant: of each named process, of this one, and of the whole machine."""

    processes: dict[str, Cost]
    own_s: float
    busy_s: float


def read_cost(spec: Spec) -> Reading:
    """Now."""
    return Reading({name: cost(pid) for name, pid in spec.processes.items()}, time.process_time(), busy_s())


def others_s(spec: Spec, start: Reading, end: Reading) -> float:
    """CPU seconds that neither the named processes nor this one spent, in between; ticks may make it a little off."""
    named = {pid: end.processes[name].cpu_s - start.processes[name].cpu_s for name, pid in spec.processes.items()}
    return max(0.0, (end.busy_s - start.busy_s) - (end.own_s - start.own_s) - sum(named.values()))


def summary(phase: Phase, start: Reading, end: Reading) -> dict[str, Any]:
    """The result document: see the keys."""
    wall_s = (phase.ended_ns - phase.started_ns) / 1e9
    done, before, after = len(phase.durations_ns), start.processes, end.processes
    result: dict[str, Any] = {
        "connections": phase.spec.connections,
        "requests": done,
        "seconds": round(wall_s, 3),
        "rps": round(done / wall_s, 1),
        "p50_ms": percentile(phase.durations_ns, 50) / _NS_IN_MS,
        "p99_ms": percentile(phase.durations_ns, 99) / _NS_IN_MS,
        "statuses": {str(status): n for status, n in sorted(phase.statuses.items())},
        "errors": phase.errors,
        "first_error": phase.first_error,
        "reconnects": phase.reconnects,
        "generator_cpu_share": round((end.own_s - start.own_s) / wall_s, 3),
        "others_cpu_share": round(others_s(phase.spec, start, end) / wall_s, 3),
        "processes": {
            name: {
                "cpu_ms_per_request": (after[name].cpu_s - before[name].cpu_s) * 1000 / max(done, 1),
                "cpu_share": round((after[name].cpu_s - before[name].cpu_s) / wall_s, 3),
                "rss_start_mb": before[name].rss_bytes / 1e6,
                "rss_end_mb": after[name].rss_bytes / 1e6,
            }
            for name in before
        },
    }
    if phase.spec.chunks:
        result["ttft_p50_ms"] = percentile(phase.first_byte_ns, 50) / _NS_IN_MS
        result["ttft_p99_ms"] = percentile(phase.first_byte_ns, 99) / _NS_IN_MS
        result["chunks"] = phase.chunks
        result["chunks_per_s"] = round(phase.chunks / wall_s, 1)
    return result


async def _sample_memory(spec: Spec, phase: Phase, samples: list[dict[str, float]]) -> None:
    """Adds to `samples`: `at` is how many requests were answered by then, the rest megabytes by process name."""
    while len(samples) < MEMORY_SAMPLES_MAX:
        rss = {name: cost(pid).rss_bytes / 1e6 for name, pid in spec.processes.items()}
        samples.append({"at": float(len(phase.durations_ns)), **rss})
        await asyncio.sleep(spec.sample_memory_s)


async def load(spec: Spec) -> dict[str, Any]:
    """Warm up, measure, sum up. Raises OSError when nobody listens."""
    url, request = urlsplit(spec.url), request_bytes(spec)
    if url.hostname is None or url.port is None:
        raise ValueError("the url needs a host and a port")
    callers = [Caller(request, url.hostname, url.port) for _ in range(spec.connections)]
    await asyncio.gather(*(caller.connect() for caller in callers))
    if spec.warmup_s:
        warmup = Phase(spec, spec.warmup_s, 0)
        warmup.start(callers)
        await warmup.wait()
    phase, samples = Phase(spec, spec.seconds, spec.count), list[dict[str, float]]()
    start = read_cost(spec)
    phase.start(callers)
    sampling = asyncio.ensure_future(_sample_memory(spec, phase, samples)) if spec.sample_memory_s else None
    await phase.wait()
    end = read_cost(spec)
    if sampling is not None:
        sampling.cancel()
    for caller in callers:
        caller.close()
    return {**summary(phase, start, end), "memory": samples}


def main() -> None:
    """The command: a `Spec` as JSON on standard input, the result as JSON on standard output."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    print(json.dumps(uvloop.run(load(spec))))


if __name__ == "__main__":
    main()
