"""Which of the planned routes is tried next: the first that can take the call now, and its slot with it.

1. A slot is taken in the instant in which it is seen to be free, and is the request's (`x.held`) until an attempt
   begins on it or the request is closed; between looking and calling lie durable writes.
2. A capability that comes back from a rest lets one call through: whoever holds its slot first.
3. The safe path is never a way around a queue: it is tried when it is next, not because others are full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from terraflow.contracts.capability import Capability
from terraflow.contracts.plan import Role
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


def take_route(plane: Plane, x: Exchange, start: int) -> int | None:
    """The first route from `start` on that is healthy and whose slot could be taken, held now; else `start`, to wait
    there; None when no route from `start` on is healthy any more."""
    assert x.plan is not None
    now, waiting = plane.clock.monotonic(), None
    for at in range(start, len(x.plan.routes)):
        route = x.plan.routes[at]
        if at > start and route.role is Role.SAFE_PATH and waiting is not None:
            break
        if not plane.health.healthy(route.capability.id, now):
            continue
        if _hold(plane, x, route.capability):
            return at
        waiting = at if waiting is None else waiting
    return waiting


def _hold(plane: Plane, x: Exchange, capability: Capability) -> bool:
    taken = plane.capacity.try_take(capability.id, capability.in_flight_max)
    if taken is True:
        x.held = capability.id
        plane.health.began(capability.id, plane.clock.monotonic())
        return True
    if taken is not False:
        raise TypeError("nobody knows whether there is a slot")
    return False


def all_rest(plane: Plane, x: Exchange) -> Refuse:
    """How a request ends, every route of whose plan has begun to rest since it was made."""
    assert x.plan is not None
    wait_s = rested_in_s(plane, [route.capability.id for route in x.plan.routes])
    return Refuse(reason=Governed.TIER_NOT_AVAILABLE, retry_after_s=wait_s)


def rested_in_s(plane: Plane, capabilities: Iterable[str]) -> int:
    """Whole seconds, one at least, until the first of the capabilities may be called again."""
    now = plane.clock.monotonic()
    waits = [plane.health.recovers_in_s(capability, now) for capability in capabilities]
    return max(1, math.ceil(min(waits, default=1.0)))


def has_room(plane: Plane, capability: Capability) -> bool:
    """Whether a call of the capability would not have to wait for a slot."""
    free = plane.capacity.free(capability.id, capability.in_flight_max)
    if free is not None and type(free) is not int:
        raise TypeError("the number of free slots is unknown")
    return free is None or free > 0
