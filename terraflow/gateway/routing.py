"""Which of the planned routes is tried next, given who has room."""

from __future__ import annotations

from terraflow.contracts.capability import Capability
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


def next_with_room(plane: Plane, x: Exchange, start: int) -> int:
    """The first route from `start` on with a free slot; `start` itself when none has one, to wait there."""
    assert x.plan is not None
    for at in range(start, len(x.plan.routes)):
        if has_room(plane, x.plan.routes[at].capability):
            return at
    return start


def has_room(plane: Plane, capability: Capability) -> bool:
    """Whether a call of the capability would not have to wait for a slot."""
    free = plane.capacity.free(capability.id, capability.in_flight_max)
    if free is not None and type(free) is not int:
        raise TypeError("the number of free slots is unknown")
    return free is None or free > 0
