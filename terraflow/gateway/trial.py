"""One open attempt on one capability."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from terraflow.contracts.plan import PlannedRoute
from terraflow.ports.upstream import ModelRequest, Placement


class Why(StrEnum):
    """Why an attempt was made, as the record says it."""

    FIRST = "first"
    RETRY = "retry"
    FALLBACK = "fallback"
    SAFE_PATH = "safe_path"
    REPAIR = "repair"


class Rests(msgspec.Struct, frozen=True):
    """No attempt: its capability began to rest while the request waited for a slot of it."""


class Trial(msgspec.Struct):
    """An open attempt. `started` is a monotonic instant in seconds; `placement` is the replica that took it, where the
    capability has several. While it is `connecting` nothing of it has gone out."""

    route: PlannedRoute
    why: Why
    request: ModelRequest
    started: float
    placement: Placement | None = None
    connecting: bool = False

    def placed(self, placement: Placement) -> None:
        """See `ports.upstream.Call`."""
        self.placement = placement

    def connects(self, now: bool) -> None:
        """See `ports.upstream.Call`."""
        self.connecting = now
