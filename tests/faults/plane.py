"""A plane whose ports can be made to misbehave while it runs.

    python -m tests.faults.plane ARMED      (settings from TERRAFLOW_*)

1. `ARMED` is a file that holds the name of a fault, for as long as it is to happen.
2. Everything else is the product: `serve` with wrapped ports, as its command would run it.
3. A fault's own text holds a canary that must never be seen: it stands for what a real exception might quote.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from terraflow.app.server import serve
from terraflow.app.settings import environment, load_settings
from terraflow.app.wiring import Wrap
from terraflow.core.types import Instant
from terraflow.ports.runtime import Clock
from terraflow.ports.store import StoreUnavailable
from terraflow.ports.upstream import Call, Chunk
from tests.harness.caller import CANARY

Armed = Callable[[], str]
Act = Callable[[], Any]


def unavailable() -> Any:
    """The database is gone."""
    raise StoreUnavailable(f"the disk said {CANARY}")


def broken() -> Any:
    """A fault that nobody foresaw."""
    raise RuntimeError(f"unexpected {CANARY}")


def nothing() -> Any:
    """No answer where there must be one."""
    return None


def yes() -> Any:
    """It is so."""
    return True


def odd() -> Any:
    """An answer of no known type."""
    return CANARY


class Fault(NamedTuple):
    """A row: the port, the verbs that misbehave, and how."""

    port: str
    verbs: tuple[str, ...]
    act: Act


STREAM_STOPS = "stream stops"
STREAM_CLINGS = "stream clings"
CLOCK_JUMPED = "clock jumped"
AHEAD = 2 * 86_400_000_000

REQUEST_VERBS = (
    "find_key", "claim", "begin", "reserve", "settle", "finish", "note", "find_answer", "find_entries", "orphans",
)  # fmt: skip

# fmt: off
FAULTS: dict[str, Fault] = {
    "store gone":         Fault("store", REQUEST_VERBS, unavailable),
    "find_key":           Fault("store", ("find_key",), unavailable),
    "find_key broken":    Fault("store", ("find_key",), broken),
    "claim":              Fault("store", ("claim",), unavailable),
    "find_answer":        Fault("store", ("find_answer",), unavailable),
    "begin":              Fault("store", ("begin",), unavailable),
    "begin broken":       Fault("store", ("begin",), broken),
    "begin nothing":      Fault("store", ("begin",), nothing),
    "reserve":            Fault("store", ("reserve",), unavailable),
    "settle":             Fault("store", ("settle",), unavailable),
    "finish":             Fault("store", ("finish", "orphans"), unavailable),
    "finish broken":      Fault("store", ("finish", "orphans"), broken),
    "note":               Fault("store", ("note",), unavailable),
    "behind":             Fault("store", ("behind",), yes),
    "find_entries":       Fault("store", ("find_entries",), unavailable),
    "find_entries broken": Fault("store", ("find_entries",), broken),
    "end_item":           Fault("batches", ("end_item",), unavailable),
    "scan nothing":       Fault("scanner", ("steps",), nothing),
    "scan odd":           Fault("scanner", ("steps",), odd),
    "scan broken":        Fault("scanner", ("steps",), broken),
    "boundary nothing":   Fault("providers", ("inside_boundary",), nothing),
    "boundary odd":       Fault("providers", ("inside_boundary",), odd),
    "boundary broken":    Fault("providers", ("inside_boundary",), broken),
    "secret nothing":     Fault("providers", ("ready",), nothing),
    "secret broken":      Fault("providers", ("ready",), broken),
    "provider missing":   Fault("providers", ("provider",), broken),
    "provider broken":    Fault("provider", ("complete", "stream"), broken),
    "provider nothing":   Fault("provider", ("complete",), nothing),
    "provider odd":       Fault("provider", ("complete",), odd),
}
# fmt: on


class Faulty:
    """A port that does what the armed fault says where that is about it, and else what the real one does."""

    def __init__(self, port: str, real: Any, armed: Armed) -> None:
        self._port = port
        self._real = real
        self._armed = armed

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._real, name)
        if not callable(verb):
            return verb
        if inspect.iscoroutinefunction(verb):

            async def later(*given: Any, **named: Any) -> Any:
                act = self._act(name)
                return await verb(*given, **named) if act is None else act()

            return later

        def now(*given: Any, **named: Any) -> Any:
            act = self._act(name)
            return verb(*given, **named) if act is None else act()

        return now

    def _act(self, verb: str) -> Act | None:
        fault = FAULTS.get(self._armed())
        return fault.act if fault is not None and fault.port == self._port and verb in fault.verbs else None


class Clinging:
    """A stream that ends well and cannot be left."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __aiter__(self) -> Clinging:
        return self

    async def __anext__(self) -> Chunk:
        chunk: Chunk = await anext(self._real)
        return chunk

    async def aclose(self) -> None:
        await self._real.aclose()
        broken()


class Stops(Faulty):
    """A provider whose streams can also break with a fault of ours, after their first chunk or when they are left."""

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        if self._armed() == STREAM_STOPS:
            return self._stopped(call)
        stream: AsyncIterator[Chunk] = self.__getattr__("stream")(call)
        return Clinging(stream) if self._armed() == STREAM_CLINGS else stream

    async def _stopped(self, call: Call) -> AsyncIterator[Chunk]:
        async for chunk in self._real.stream(call):
            yield chunk
            broken()


class Jumped:
    """A wall clock that can be two days ahead; the monotonic one goes on as ever."""

    def __init__(self, real: Clock, armed: Armed) -> None:
        self._real = real
        self._armed = armed
        self.monotonic = real.monotonic
        self.sleep = real.sleep

    def now(self) -> Instant:
        return Instant(self._real.now() + (AHEAD if self._armed() == CLOCK_JUMPED else 0))


def wrap(armed: Armed) -> Wrap:
    """The wiring with every fault in it."""
    return Wrap(
        store=lambda real: Faulty("store", real, armed),
        batches=lambda real: Faulty("batches", real, armed),
        provider=lambda _, real: Stops("provider", real, armed),
        providers=lambda real: Faulty("providers", real, armed),
        scanner=lambda real: Faulty("scanner", real, armed),
        clock=lambda real: Jumped(real, armed),
    )


def main() -> None:
    """Serve, as `terraflow serve` does, until told to stop."""
    file = Path(sys.argv[1])

    def armed() -> str:
        try:
            return file.read_text()
        except FileNotFoundError:
            return ""

    def listening(url: str) -> None:
        print(msgspec.json.encode({"base_url": f"{url}/v1"}).decode(), flush=True)

    serve(load_settings(None, environment()), listening, wrap=wrap(armed))


if __name__ == "__main__":
    main()
