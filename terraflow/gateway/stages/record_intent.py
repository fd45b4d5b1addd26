"""Steps 13 and 14: the decision is durable, and the first attempt's worst case reserved, before anything runs."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, StepOutcome
from terraflow.gateway.attempts import no_room, reservation_for
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.recording import intent_entry
from terraflow.gateway.routing import all_rest, take_route
from terraflow.ports.store import Entry, NoRoom, Reservation, Reserved


async def record_intent(plane: Plane, x: Exchange) -> StepOutcome:
    """EVIDENCE_UNAVAILABLE if it cannot be written, BUDGET_EXHAUSTED if a level has no room, TIER_NOT_AVAILABLE if the
    last route began to rest in this instant."""
    assert x.plan is not None
    first = take_route(plane, x, 0)
    if first is None:
        # Between the plan and here somebody else became the one probe of the only route.
        return all_rest(plane, x)
    x.first_route = first
    route = x.plan.routes[first]
    reservation = reservation_for(plane, x, route, route.worst_case_micro_usd)
    intent = intent_entry(plane, x, reservation)
    if type(reservation) is not Reservation or type(intent) is not Entry:
        raise TypeError("there is no intent to record, or nothing is reserved for it")
    found = await plane.store.begin((intent,), reservation)
    if type(found) is NoRoom:
        return no_room(found)
    if type(found) is not Reserved:
        raise TypeError("the store did not say that the intent is durable")
    x.intent_recorded = True
    x.reservation = reservation
    return CONTINUE
