"""Which of the planned routes is tried next, given who has room."""

from __future__ import annotations

from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


def next_with_room(plane: Plane, x: Exchange, start: int) -> int:
    """The first route from `start` on with a free slot; `start` itself when none has one, to wait there."""
    assert x.plan is not None
    for at in range(start, len(x.plan.routes)):
        capability = x.plan.routes[at].capability.id
        if plane.capacity.free(capability, x.definition(capability).in_flight_max) != 0:
            return at
    return start
