"""Log lines: JSON on standard error, ids, codes and times, never content."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from typing import IO

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.evidence.record import rfc3339
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.mouths.errors import ungoverned_status
from terraflow.gateway.plane import Telemetry
from terraflow.ports.runtime import Clock
from terraflow.ports.store import KeyHolder

_encode = msgspec.json.Encoder().encode

FLUSH_S = 0.1
LINES_MAX = 256
"""A full pipe takes at least 64 KiB without making the writer wait; a line has about 250 bytes."""

_SHED = Refuse(reason=Governed.QUEUE_SHED)
_Owner = tuple[str, str] | tuple[None, None]
"""Tenant and application."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record without anything but its own words; a traceback's frames, never its exception's text."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().encode("utf-8", "replace").decode(),
        }
        # asyncio's own handler passes False where there is no exception.
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return _encode(line).decode()


def set_up_logging(level: str) -> None:
    """Send every logger's lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It counts the changes of a folder at INFO; whoever watches says what came of them.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


class EachOf:
    """Several `Telemetry`s as one."""

    def __init__(self, *told: Telemetry) -> None:
        self._told = told

    def closed(self, x: Exchange, closed: Closed) -> None:
        """See the protocol."""
        for one in self._told:
            one.closed(x, closed)

    def turned_away(self, refuse: Refuse, request_id: str | None, caller: KeyHolder | None) -> None:
        """See the protocol."""
        for one in self._told:
            one.turned_away(refuse, request_id, caller)


class AccessLog:
    """A `Telemetry` that writes one line a request, or none.

    Lines are gathered and written together, at the latest `FLUSH_S` later: a write a request would cost more than
    the rest of the line. A killed process loses those of its last instant; the records are in the evidence.
    Of requests that were shed before governance an application has one line in each of these times, with their number.
    """

    def __init__(self, clock: Clock, out: IO[str] | None) -> None:
        self._clock = clock
        self._out = out
        self._lines: list[bytes] = []
        self._shed: Counter[_Owner] = Counter()

    def closed(self, x: Exchange, closed: Closed) -> None:
        """Keep a governed request's line for the next write."""
        if self._out is None:
            return
        self._keep(
            {
                "time": rfc3339(x.received_at),
                "request_id": x.request_id,
                "tenant": x.caller.tenant,
                "application": x.caller.application,
                "workload": None if x.resolution is None else x.resolution.workload.id,
                "mouth": x.mouth,
                "reason": closed.reason,
                "detail": closed.detail,
                "status": closed.status,
                "capability": closed.capability,
                "cost_micro_usd": closed.cost,
                "ms": int((self._clock.monotonic() - x.started) * 1000),
            }
        )

    def turned_away(self, refuse: Refuse, request_id: str | None, caller: KeyHolder | None) -> None:
        """Keep the line of a request that was never governed: who sent it is known once its key was."""
        if self._out is None:
            return
        owner = (None, None) if caller is None else (caller.tenant, caller.application)
        if request_id is None and caller is not None and refuse.reason is Governed.QUEUE_SHED:
            self._flush_soon()
            self._shed[owner] += 1
            return
        self._keep(self._ungoverned(refuse, request_id, owner))

    def _ungoverned(self, refuse: Refuse, request_id: str | None, owner: _Owner) -> dict[str, object]:
        return {
            "time": rfc3339(self._clock.now()),
            "request_id": request_id,
            "tenant": owner[0],
            "application": owner[1],
            "reason": refuse.reason,
            "detail": refuse.detail,
            "status": ungoverned_status(refuse),
            "problems": [f"{problem.field} {problem.rule}" for problem in refuse.problems],
        }

    def _flush_soon(self) -> None:
        if not self._lines and not self._shed:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def _keep(self, line: dict[str, object]) -> None:
        self._flush_soon()
        self._lines.append(_encode(line))
        if len(self._lines) >= LINES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        lines, self._lines = self._lines, []
        for owner, requests in self._shed.items():
            lines.append(_encode(self._ungoverned(_SHED, None, owner) | {"requests": requests}))
        self._shed.clear()
        if not lines or self._out is None:
            return
        try:
            self._out.write(b"\n".join(lines).decode() + "\n")
            self._out.flush()
        except (OSError, ValueError):
            self._out = None
