"""Telling the operator in time that the bundle in force expires.

1. From `SOON` before its end a warning: when it is first seen, which a start is, and every day after that.
2. Once it has expired an error, once.
3. Another bundle in force begins anew.
"""

from __future__ import annotations

import logging

from terraflow.core.types import MICRO, Instant
from terraflow.evidence.record import rfc3339

log = logging.getLogger("terraflow.bundles")

DAY = 86_400 * MICRO
SOON = 14 * DAY


class ExpiryWatch:
    """Looks at the bundle in force, as often as it is asked to, and says what is due."""

    def __init__(self) -> None:
        self._digest = ""
        self._due = Instant(0)
        self._expired = False

    def look(self, digest: str, sequence: int, expires_at: Instant, now: Instant) -> None:
        """Log a line if one is due. Cheap enough to be called twice a second."""
        if digest != self._digest:
            self._digest, self._due, self._expired = digest, Instant(0), False
        if now >= expires_at:
            if not self._expired:
                self._expired = True
                log.error(
                    "bundle %d expired at %s: every request is refused until a newer one is activated",
                    sequence,
                    rfc3339(expires_at),
                )
        elif expires_at - now <= SOON and now >= self._due:
            self._due = Instant(now + DAY)
            left = (expires_at - now) // DAY
            log.warning(
                "bundle %d expires at %s, in %s: sign and activate a newer one before that",
                sequence,
                rfc3339(expires_at),
                f"{left} day{'s' * (left != 1)}" if left else "less than a day",
            )
