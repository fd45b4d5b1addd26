"""What follows a provider's failure: a table, one row a failure.

1. Every member of `Failure` has a row (a test holds that).
2. `blames_provider` says whether the failure counts against the capability's health.
3. `end` says what the failure tells of what the provider did, where it was reached: by that `spend.posting` has what
   the attempt is posted at.
4. `ends_as` is the code of a request that this failure ends.
5. A failure of one replica, while another of the same capability could take the call, is tried there at once: as often
   as there are tries where nothing was acted on, and like a retry where something was, so that a request that breaks
   replicas does not break all of them.
6. A vendor that says that a retry is in vain is not asked again.
7. A capability is not retried before its health lets it be called: that is the next route's time, or the end.
"""

from __future__ import annotations

import random
from enum import Enum, auto

import msgspec

from terraflow.core.reasons import Governed
from terraflow.ports.upstream import Failure, ProviderFailure
from terraflow.spend.posting import End


class Then(Enum):
    """What to try after a failure, if the deadline and the plan allow it."""

    RETRY = auto()
    NEXT_ROUTE = auto()
    REFUSE = auto()


class Rule(msgspec.Struct, frozen=True):
    """One row of the table."""

    then: Then
    blames_provider: bool
    end: End
    ends_as: Governed


_UNRECOVERED = Governed.PROVIDER_ERROR_UNRECOVERED

# fmt: off
RECOVERY: dict[Failure, Rule] = {
    Failure.CONNECT:           Rule(Then.RETRY,      True,  End.UNDONE, _UNRECOVERED),
    Failure.TIMEOUT:           Rule(Then.NEXT_ROUTE, True,  End.HIDDEN, _UNRECOVERED),
    Failure.CUT_OFF:           Rule(Then.RETRY,      True,  End.HIDDEN, _UNRECOVERED),
    Failure.RATE_LIMITED:      Rule(Then.RETRY,      True,  End.UNDONE, _UNRECOVERED),
    Failure.OVERLOADED:        Rule(Then.RETRY,      True,  End.UNDONE, _UNRECOVERED),
    Failure.SERVER_ERROR:      Rule(Then.RETRY,      True,  End.UNDONE, _UNRECOVERED),
    Failure.AUTHENTICATION:    Rule(Then.NEXT_ROUTE, True,  End.UNDONE, _UNRECOVERED),
    Failure.MODEL_NOT_FOUND:   Rule(Then.NEXT_ROUTE, True,  End.UNDONE, _UNRECOVERED),
    Failure.MALFORMED:         Rule(Then.NEXT_ROUTE, True,  End.HIDDEN, _UNRECOVERED),
    Failure.REJECTED_CONTENT:  Rule(Then.REFUSE,     False, End.UNDONE, Governed.PROVIDER_REJECTED_REQUEST),
    Failure.MISMATCH:          Rule(Then.NEXT_ROUTE, False, End.UNDONE, _UNRECOVERED),
    Failure.UNSUPPORTED_FIELD: Rule(Then.NEXT_ROUTE, False, End.UNDONE, Governed.PROVIDER_REJECTED_REQUEST),
    Failure.CONTENT_FILTERED:  Rule(Then.REFUSE,     False, End.READ,   Governed.CONTENT_FILTERED),
}
# fmt: on

RETRIES_MAX = 2
"""Retries of one route: with the first call three tries, what vendors' own clients do."""

NO_TIME_S = 0.005
"""Less than this before the deadline is none: timers count whole milliseconds and may fire one early, and no call is
answered in it."""

PAUSE_MAX_S = 2.0
"""The longest pause before a retry while other routes are left, and the longest that we choose ourselves."""

_BACKOFF_FIRST_S = 0.1


class Retry(msgspec.Struct, frozen=True):
    """The same route again, after a pause."""

    delay_s: float


class Move(msgspec.Struct, frozen=True):
    """The next route of the plan."""


class Ended(msgspec.Struct, frozen=True):
    """No more tries; the request ends with this code."""

    reason: Governed


def decide_next(
    failed: ProviderFailure,
    *,
    retries: int,
    tries_left: int,
    routes_left: int,
    left_s: float,
    rests_s: float,
    jitter: random.Random,
) -> Retry | Move | Ended:
    """What follows a failure, after `retries` retries of its route, with `left_s` seconds before the deadline, and
    `rests_s` before the capability may be called again."""
    rule = RECOVERY[failed.failure]
    if left_s <= NO_TIME_S and rule.then is not Then.REFUSE:
        return Ended(Governed.DEADLINE_EXPIRED)
    if rule.then is Then.REFUSE or tries_left <= 0:
        return Ended(rule.ends_as)
    may_try = tries_left > routes_left
    if failed.elsewhere and may_try and rests_s <= 0 and (not failed.reached or retries < RETRIES_MAX):
        return Retry(0.0)
    # A try is kept for each route that follows, and nobody waits long for one while another is ready.
    if rule.then is Then.RETRY and not failed.in_vain and retries < RETRIES_MAX and may_try:
        delay_s = retry_delay_s(retries + 1, failed.retry_after_s, jitter)
        if rests_s <= delay_s < left_s and (routes_left == 0 or delay_s <= PAUSE_MAX_S):
            return Retry(delay_s)
    return Move() if routes_left > 0 else Ended(rule.ends_as)


def retry_delay_s(retry: int, retry_after_s: float | None, jitter: random.Random) -> float:
    """Seconds to wait before retry number `retry` (1, 2, …): what the vendor asked, else a random part of a doubling
    bound, so that many callers do not come back at once."""
    if retry_after_s is not None:
        return retry_after_s
    bound = min(PAUSE_MAX_S, _BACKOFF_FIRST_S * 2 ** (retry - 1))
    return float(bound / 2 + jitter.random() * bound / 2)
