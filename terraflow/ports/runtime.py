"""Time, names and signatures: what a pure function cannot have.

1. `Clock.now` MUST be UTC wall time and MAY jump; nothing measures a duration with it.
2. `Clock.monotonic` MUST never go backwards; every deadline is an instant on it.
"""

from __future__ import annotations

from typing import Protocol

from terraflow.core.types import Instant, RequestId


class Clock(Protocol):
    """Wall time for records, monotonic time for deadlines."""

    def now(self) -> Instant:
        """Microseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that only moves forward."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of monotonic time."""
        ...


class Ids(Protocol):
    """Names nobody can guess."""

    def request_id(self) -> RequestId:
        """A fresh id of 128 random bits."""
        ...
