"""One open attempt on one capability."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from terraflow.contracts.plan import PlannedRoute
from terraflow.ports.upstream import ModelRequest


class Why(StrEnum):
    """Why an attempt was made, as the record says it."""

    FIRST = "first"
    RETRY = "retry"
    FALLBACK = "fallback"
    SAFE_PATH = "safe_path"
    REPAIR = "repair"


class Trial(msgspec.Struct):
    """An open attempt. `started` is a monotonic instant in seconds."""

    route: PlannedRoute
    why: Why
    request: ModelRequest
    started: float
