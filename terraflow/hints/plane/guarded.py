"""Hints whose faults cost a cache miss and never a request: whatever the port's implementation raises ends here.

A fault is a bug of ours, since the port forbids raising; it is logged by its type, at most once a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from terraflow.core.reasons import Lookup
from terraflow.ports.hints import Hint, Prefix, ReplicaHints
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.hints")

TELL_EVERY_S = 60.0
_ABSENT = Hint(reason=Lookup.NO_HINT)


class GuardedHints:
    """A `ReplicaHints` around another."""

    def __init__(self, hints: ReplicaHints, clock: Clock) -> None:
        self._hints = hints
        self._clock = clock
        self._tell_at = 0.0

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        """See the port."""
        try:
            hint = await self._hints.hint(prefix, timeout_s)
        except Exception as fault:
            self._tell(fault)
            return _ABSENT
        return hint if type(hint) is Hint else _ABSENT

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        """See the port."""
        try:
            return self._hints.pressure(tenant, model)
        except Exception as fault:
            self._tell(fault)
            return {}

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        """See the port."""
        try:
            self._hints.joined(tenant, model, scheme, replicas)
        except Exception as fault:
            self._tell(fault)

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        """See the port."""
        try:
            self._hints.sent(prefix, replica, matched_tokens)
        except Exception as fault:
            self._tell(fault)

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        """See the port."""
        try:
            self._hints.ended(prefix, replica, held)
        except Exception as fault:
            self._tell(fault)

    def lost(self, prefix: Prefix, replica: str) -> None:
        """See the port."""
        try:
            self._hints.lost(prefix, replica)
        except Exception as fault:
            self._tell(fault)

    async def close(self) -> None:
        """See the port."""
        await self._hints.close()

    def _tell(self, fault: Exception) -> None:
        now = self._clock.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY_S
            log.error("a route hint failed, and the request goes on without: %s", type(fault).__name__)
