"""Log lines: JSON on standard error, ids, codes and times, never content."""

from __future__ import annotations

import logging
import sys
import time
from typing import IO

import msgspec

from terraflow.evidence.record import rfc3339
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.ports.runtime import Clock

_encode = msgspec.json.Encoder().encode


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record without anything but its own words; a traceback's frames, never its exception's text."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return _encode(line).decode()


def set_up_logging(level: str) -> None:
    """Send every logger's lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class AccessLog:
    """A `Telemetry` that writes one line a request, or none."""

    def __init__(self, clock: Clock, out: IO[str] | None) -> None:
        self._clock = clock
        self._out = out

    def closed(self, x: Exchange, closed: Closed) -> None:
        """Write the request's line."""
        if self._out is None:
            return
        line = {
            "time": rfc3339(x.received_at),
            "request_id": x.request_id,
            "tenant": x.caller.tenant,
            "application": x.caller.application,
            "workload": None if x.resolution is None else x.resolution.workload.id,
            "reason": closed.reason,
            "status": closed.status,
            "capability": closed.capability,
            "cost_micro_usd": closed.cost,
            "ms": round((self._clock.monotonic() - x.started) * 1000, 1),
        }
        try:
            self._out.write(_encode(line).decode() + "\n")
        except (OSError, ValueError):
            self._out = None
