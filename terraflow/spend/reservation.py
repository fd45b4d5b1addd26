"""The life of a reservation, as a table: every state by every event, one row each.

1. It starts reserved and resolves once, to posted or voided; what has resolved never changes.
2. Posting takes any amount, more than was reserved among them: the vendor's bill is what it is.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a reservation stands."""

    RESERVED = "reserved"
    POSTED = "posted"
    VOIDED = "voided"


class Event(StrEnum):
    """What can be asked of it."""

    POST = "post"
    VOID = "void"


class NotOpen(ValueError):
    """The reservation has resolved already."""


LIFE: dict[tuple[State, Event], State | None] = {
    (State.RESERVED, Event.POST): State.POSTED,
    (State.RESERVED, Event.VOID): State.VOIDED,
    (State.POSTED, Event.POST): None,
    (State.POSTED, Event.VOID): None,
    (State.VOIDED, Event.POST): None,
    (State.VOIDED, Event.VOID): None,
}
"""None: refused."""


def resolve(state: State, event: Event) -> State:
    """The state after an event. Raises NotOpen where the table refuses."""
    after = LIFE[state, event]
    if after is None:
        raise NotOpen(f"a reservation that is {state} cannot be asked to {event}")
    return after
