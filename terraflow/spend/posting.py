"""At what an attempt is posted, as a table: by how it ended, and by who counted what it used.

1. The vendor's figure is the bill, even above what was reserved. Our own count is none: it is never posted above that.
2. Where nobody counted, how the attempt ended says what is posted. Where that hides what the provider did, it is the
   worst case until it is reconciled: the input was asked for, and what was written or thought nobody saw.
3. Whatever is not the vendor's figure is marked as estimated, except where nothing was used.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from terraflow.ports.upstream import Usage
from terraflow.spend.pricing import UnknownPrice


class End(Enum):
    """How an attempt ended."""

    ANSWERED = auto()
    """With an answer, or the provider's own end of its stream."""
    UNREACHED = auto()
    """Before the provider could act on it: by a failure, or from our side."""
    UNDONE = auto()
    """By a failure that says that the provider did not work."""
    READ = auto()
    """By a failure that says that it read the request, and held back what it wrote."""
    HIDDEN = auto()
    """By a failure that hides what it did."""
    BROKEN_OFF = auto()
    """From our side, once it had gone out: the caller left or cancelled, or the plane stops."""


class Basis(Enum):
    """What is posted."""

    VENDORS = auto()
    """The cost of what the vendor counted."""
    OURS = auto()
    """The cost of what we counted: the input, and what had come of an answer."""
    INPUT = auto()
    """The cost of our count of the input alone."""
    WORST_CASE = auto()
    """All that was reserved."""
    NOTHING = auto()


# fmt: off
POSTED: dict[End, tuple[Basis, Basis, Basis]] = {
    # it ended        the vendor counted   we counted    nobody did
    End.ANSWERED:    (Basis.VENDORS,       Basis.OURS,   Basis.WORST_CASE),
    End.UNREACHED:   (Basis.VENDORS,       Basis.OURS,   Basis.NOTHING),
    End.UNDONE:      (Basis.VENDORS,       Basis.OURS,   Basis.NOTHING),
    End.READ:        (Basis.VENDORS,       Basis.OURS,   Basis.INPUT),
    End.HIDDEN:      (Basis.VENDORS,       Basis.OURS,   Basis.WORST_CASE),
    End.BROKEN_OFF:  (Basis.VENDORS,       Basis.OURS,   Basis.WORST_CASE),
}
# fmt: on


class Posting(NamedTuple):
    """What is posted of an attempt, in micro-dollars, and the usage that stands beside it."""

    micro_usd: int
    usage: Usage | None
    estimated: bool
    overrun: bool


def posting(end: End, usage: Usage | None, read: Usage, reserved: int, price: Callable[[Usage], int]) -> Posting:
    """The posting of an attempt for which so many micro-dollars are reserved. `usage` is what the vendor counted, or,
    marked as estimated, we; `read` is our count of the input alone; `price` may raise UnknownPrice."""
    basis = POSTED[end][2 if usage is None else 1 if usage.estimated else 0]
    if basis is Basis.NOTHING:
        return Posting(0, None, estimated=False, overrun=False)
    if basis is Basis.INPUT:
        usage = read
    if basis is Basis.WORST_CASE or usage is None:
        return Posting(reserved, None, estimated=True, overrun=False)
    try:
        cost = price(usage)
    except UnknownPrice:
        # The vendor counted a kind of token that nobody asked for and that has no price.
        return Posting(reserved, usage, estimated=True, overrun=False)
    if usage.estimated:
        return Posting(min(cost, reserved), usage, estimated=True, overrun=False)
    return Posting(cost, usage, estimated=False, overrun=cost > reserved)
