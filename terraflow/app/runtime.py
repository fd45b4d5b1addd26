"""The real clock and the real source of ids."""

from __future__ import annotations

import asyncio
import secrets
import time

from terraflow.core.types import Instant, RequestId


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Instant:
        """Microseconds since the epoch, UTC."""
        return Instant(time.time_ns() // 1000)

    def monotonic(self) -> float:
        """Seconds; the loop's clock, so that deadlines and timers agree."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids from the operating system's random source."""

    def request_id(self) -> RequestId:
        """`req_` and 128 random bits in hexadecimal."""
        return RequestId("req_" + secrets.token_hex(16))
