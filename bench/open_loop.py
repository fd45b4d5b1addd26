"""The open-loop generator: requests go out when their time has come, however many are unanswered.

1. It runs in its own process: `python -m bench.open_loop` reads a `Spec` as JSON from standard input and prints its
   `Sent` as JSON at the end. It stops by itself: when all is answered, or `grace_s` after the last phase.
2. Arrivals are Poisson, drawn for each tenant and phase from the seed: two planes get the same requests at the same
   instants.
3. A request's time runs from the instant at which it was due, so that a generator that is late makes no figure better.
4. A connection carries one request at a time; one that is free is used again, and where none is another is opened.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import httptools
import msgspec
import uvloop

LOST = 0
"""The status of a request that was not answered: the connection broke, could not be opened, or time was up."""
WARM_CONNECTIONS = 64


class Phase(msgspec.Struct, frozen=True):
    """So many seconds with these requests a second by tenant."""

    name: str
    seconds: float
    rates: dict[str, float]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `tenants` maps a name to its header line."""

    host: str
    port: int
    path: str
    tenants: dict[str, str]
    body: str
    phases: tuple[Phase, ...]
    seed: int = 1
    grace_s: float = 10.0


class Row(msgspec.Struct, array_like=True):
    """One request: the phase it belongs to, its tenant, when it was due in the phase, how long until it was answered,
    the status, Retry-After in seconds or -1, and whether it was governed."""

    phase: int
    tenant: str
    due_s: float
    took_ms: float
    status: int
    retry_after_s: int
    governed: bool = False


class Sent(msgspec.Struct):
    """Everything, and how late the generator itself was on average."""

    rows: list[Row]
    connections: int
    late_mean_ms: float
    own_cpu_s: float


def arrivals(phases: tuple[Phase, ...], seed: int) -> list[tuple[float, int, str, float]]:
    """When each request is due: seconds from the start, phase, tenant, and seconds into the phase; in order."""
    due, begins = [], 0.0
    for number, phase in enumerate(phases):
        for tenant, rate in phase.rates.items():
            draw, at = random.Random(f"{seed}/{phase.name}/{tenant}"), 0.0
            while rate > 0 and (at := at + draw.expovariate(rate)) < phase.seconds:
                due.append((begins + at, number, tenant, at))
        begins += phase.seconds
    return sorted(due)


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport | None = None
        self._row: Row | None = None
        self._due = 0.0
        self._fresh()

    def _fresh(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after_s = -1
        self._governed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def send(self, row: Row, due: float, request: bytes) -> None:
        """Send the request of a row."""
        assert self._transport is not None
        self._row, self._due, self._retry_after_s, self._governed = row, due, -1, False
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name == b"retry-after":
            self._retry_after_s = int(value)
        elif name == b"x-terraflow-reason":
            self._governed = True

    def on_message_complete(self) -> None:
        """Called by the parser: the row is whole, the connection free."""
        self._end(self._parser.get_status_code())
        if self._parser.should_keep_alive():
            self._generator.idle.append(self)
        elif self._transport is not None:
            self._transport.close()

    def _end(self, status: int) -> None:
        row, self._row = self._row, None
        if row is not None:
            row.took_ms = (time.monotonic() - self._due) * 1000
            row.status, row.retry_after_s, row.governed = status, self._retry_after_s, self._governed
            self._generator.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        """A request in flight is lost with it."""
        self._transport = None
        if self in self._generator.idle:
            self._generator.idle.remove(self)
        self._end(LOST)

    def close(self) -> None:
        """Hang up."""
        self._row = None
        if self._transport is not None:
            self._transport.abort()


class Generator:
    """The requests of a spec."""

    def __init__(self, spec: Spec) -> None:
        self.idle: list[_Connection] = []
        self._spec = spec
        self._all: list[_Connection] = []
        self._rows: list[Row] = []
        self._open = 0
        self._done = asyncio.Event()
        self._late_s: list[float] = []
        self._opening: set[asyncio.Task[Any]] = set()
        body = spec.body.encode()
        head = f"POST {spec.path} HTTP/1.1\r\nhost: {spec.host}:{spec.port}\r\ncontent-type: application/json\r\n"
        self._requests = {
            tenant: f"{head}{header}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
            for tenant, header in spec.tenants.items()
        }

    async def run(self) -> Sent:
        """Send everything, and wait for the answers."""
        self.idle += [await self._connect() for _ in range(WARM_CONNECTIONS)]
        begun, cpu_s = time.monotonic() + 0.1, time.process_time()
        for at, phase, tenant, due_s in arrivals(self._spec.phases, self._spec.seed):
            wait_s = begun + at - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._late_s.append(max(0.0, time.monotonic() - begun - at))
            self._send(Row(phase, tenant, due_s, 0.0, LOST, -1), begun + at)
        ends = begun + sum(phase.seconds for phase in self._spec.phases)
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
        if self._open:
            self._done.clear()
            try:
                await asyncio.wait_for(self._done.wait(), self._spec.grace_s)
            except TimeoutError:
                pass
        for connection in self._all:
            connection.close()
        return Sent(
            rows=self._rows,
            connections=len(self._all),
            late_mean_ms=sum(self._late_s) / len(self._late_s) * 1000,
            own_cpu_s=time.process_time() - cpu_s,
        )

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(self), self._spec.host, self._spec.port)
        self._all.append(connection)
        return connection

    def _send(self, row: Row, due: float) -> None:
        self._rows.append(row)
        self._open += 1
        if self.idle:
            self.idle.pop().send(row, due, self._requests[row.tenant])
            return
        task = asyncio.ensure_future(self._send_on_another(row, due))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _send_on_another(self, row: Row, due: float) -> None:
        try:
            connection = await self._connect()
        except OSError:
            row.took_ms = (time.monotonic() - due) * 1000
            self.ended()
            return
        connection.send(row, due, self._requests[row.tenant])

    def ended(self) -> None:
        """A request has its answer, or will have none."""
        self._open -= 1
        if not self._open:
            self._done.set()


async def generate(spec: Spec) -> Sent:
    """Send what a spec says."""
    return await Generator(spec).run()


def main() -> None:
    """The command."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(generate(spec))))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
