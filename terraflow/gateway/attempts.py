"""One attempt on one capability: its money, its slot, its health, and its line in the record.

1. Every attempt reserves its own worst case first; a refusal there ends the recovery.
2. An attempt is opened once and ended once: answered, failed or abandoned. Ending it gives back its slot, tells the
   capability's health, and says how it ended, by which `spend.posting` decides what its reservation is posted at; the
   posting itself is made durable with the next attempt's reservation or with the request's outcome, whichever comes
   first.
"""

from __future__ import annotations

from terraflow.contracts.plan import PlannedRoute
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.evidence import record
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.pricing import cost_of
from terraflow.gateway.recovery import RECOVERY
from terraflow.gateway.trial import Rests, Trial, Why
from terraflow.ports.store import NoRoom, Reservation, Settlement
from terraflow.ports.upstream import Failure, ModelRequest, Placement, ProviderFailure, Usage
from terraflow.spend.budgets import budget_lines
from terraflow.spend.posting import End, posting

TIME_SHARE = 0.75
"""A call that had a smaller part of the contract's deadline than this says nothing of its provider by not being
answered in it: the rest of the time passed before it."""
_TOO_MUCH = frozenset((Failure.RATE_LIMITED, Failure.OVERLOADED, Failure.TIMEOUT))
"""The failures of a provider that is given more than it can do."""


def reservation_for(plane: Plane, x: Exchange, route: PlannedRoute, amount: int) -> Reservation:
    """The reservation of the next attempt, on every level and window of the workload."""
    assert x.resolution is not None
    workload = x.resolution.workload
    lines = budget_lines(workload.tenant, workload.budgets, plane.clock.now())
    if type(lines) is not tuple or not lines:
        raise TypeError("a reservation touches no budget")
    return Reservation(
        id=f"{x.request_id}/{x.attempts_opened}",
        request_id=x.request_id,
        tenant=workload.tenant,
        capability=route.capability.id,
        amount=amount,
        chargeable=amount > 0,
        lines=lines,
    )


async def open_trial(
    plane: Plane, x: Exchange, route: PlannedRoute, why: Why, request: ModelRequest, worst_case: int
) -> Trial | Refuse | Rests:
    """Reserve (unless the intent already did), and take a slot within the deadline, if the capability may be called by
    then. Raises Interrupted before anything is asked of it."""
    if x.attempts_opened or x.reservation is None:
        reservation = reservation_for(plane, x, route, worst_case)
        await settle_ended(plane, x)
        found = await plane.store.reserve(reservation)
        if type(found) is NoRoom:
            return no_room(found)
        x.reservation, x.posting = reservation, None
    x.attempts_opened += 1
    capability = route.capability
    if x.held != capability.id:
        waits = plane.clock.monotonic()
        try:
            with x.presence:
                taken = await plane.capacity.take(capability.id, capability.in_flight_max, x.deadline - waits)
        finally:
            # Counted of a caller that leaves, too: the plane would else be thought slow when many do.
            x.elsewhere_s += plane.clock.monotonic() - waits
        if taken is False:
            return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="waiting_for_capacity")
        if taken is not True:
            raise TypeError("nobody knows whether there is a slot")
        x.held, now = capability.id, plane.clock.monotonic()
        if plane.health.healthy(capability.id, now) is not True:
            x.held = None
            plane.capacity.give_back(capability.id)
            return Rests()
        plane.health.began(capability.id, now)
    x.presence.asks()
    trial = Trial(route, why, request, plane.clock.monotonic())
    x.trial, x.held = trial, None
    return trial


def no_room(found: NoRoom) -> Refuse:
    """BUDGET_EXHAUSTED, with the level and window that had no room. Without Retry-After: a window may end in weeks,
    and client libraries would wait for it."""
    return Refuse(reason=Governed.BUDGET_EXHAUSTED, detail=f"{found.level}_{found.window}")


async def settle_ended(plane: Plane, x: Exchange) -> None:
    """Make the ended attempt's posting durable, if there is one."""
    if x.reservation is not None:
        # Until this is durable the reservation is the request's: whatever fails here, closing settles it as well.
        await plane.store.settle((Settlement(x.reservation.id, x.posting),))
        x.reservation = None


def trial_answered(plane: Plane, x: Exchange, trial: Trial, usage: Usage) -> None:
    """The provider answered and said, or we counted, what it used."""
    plane.health.succeeded(trial.route.capability.id, trial.started, plane.clock.monotonic())
    _ended(plane, x, trial, End.ANSWERED, None, usage)
    x.usage = usage


def trial_failed(plane: Plane, x: Exchange, trial: Trial, failed: ProviderFailure, counted: Usage | None) -> None:
    """The provider's call failed. `counted` is what the vendor or we counted of a partial answer, where there was one.
    A failure of one replica among several is not the capability's."""
    rule = RECOVERY[failed.failure]
    capability = trial.route.capability.id
    if failed.elsewhere:
        plane.health.abandoned(capability, trial.started)
    elif rule.blames_provider and not _asked_too_much(x, trial, failed.failure):
        plane.health.failed(capability, trial.started, plane.clock.monotonic(), failed.retry_after_s)
        if failed.failure in _TOO_MUCH:
            plane.capacity.overloaded(capability, trial.started)
    elif not rule.blames_provider and (failed.reached or failed.status is not None):
        plane.health.succeeded(capability, trial.started, plane.clock.monotonic())
    else:
        plane.health.abandoned(capability, trial.started)
    end = rule.end if failed.reached else End.UNREACHED
    _ended(plane, x, trial, end, failed.failure.value, counted if failed.usage is None else failed.usage)


def _asked_too_much(x: Exchange, trial: Trial, failure: Failure) -> bool:
    """Whether the failure may come of what the caller alone chose, or the plane: less time than most of the contract's,
    by a short deadline or a long wait before the call; or several choices from an engine that gives one. A
    capability's health is everybody's: no caller may spoil it, nor the plane's own queue."""
    assert x.resolution is not None
    if failure is Failure.TIMEOUT:
        contracts_ms, chosen_ms = x.resolution.workload.contract.deadline_ms, x.declared.deadline_ms
        if chosen_ms is not None and chosen_ms < contracts_ms:
            return True
        # The plane may give less than the contract does.
        whole_s = min(contracts_ms / 1000, x.deadline - x.started)
        return x.deadline - trial.started < whole_s * TIME_SHARE
    return failure is Failure.MALFORMED and x.request.choices > 1


def trial_abandoned(plane: Plane, x: Exchange, trial: Trial, counted: Usage | None) -> None:
    """The call was broken off from our side: the caller left, or the plane stops."""
    plane.health.abandoned(trial.route.capability.id, trial.started)
    _ended(plane, x, trial, End.UNREACHED if trial.connecting else End.BROKEN_OFF, "broken_off", counted)


def _ended(plane: Plane, x: Exchange, trial: Trial, end: End, failure: str | None, usage: Usage | None) -> None:
    capability, took_s = trial.route.capability.id, plane.clock.monotonic() - trial.started
    plane.capacity.give_back(capability)
    x.elsewhere_s += took_s
    x.trial = None
    reserved = x.reservation.amount if x.reservation is not None else 0
    definition = x.definition(capability)
    posted = posting(end, usage, Usage.counted(trial.request, 0), reserved, lambda used: cost_of(definition, used))
    x.posting = posted.micro_usd or None
    x.attempts.append(
        record.Attempt(
            capability=capability,
            kind=trial.why.value,
            failure=failure,
            latency_ms=int(took_s * 1000),
            usage=None if posted.usage is None else usage_row(posted.usage),
            cost_micro_usd=posted.micro_usd,
            estimated=posted.estimated,
            overrun=posted.overrun,
            placement=None if trial.placement is None else placement_row(trial.placement),
        )
    )


def placement_row(placement: Placement) -> record.Placement:
    """A placement as the record writes it."""
    return record.Placement(
        replica=placement.replica,
        hint=placement.hint,
        ranked=placement.ranked,
        matched_tokens=placement.matched_tokens,
    )


def usage_row(usage: Usage) -> record.Usage:
    """Usage as the record writes it."""
    return record.Usage(
        input=usage.input,
        cached=usage.cached_input,
        cache_written=usage.cache_write,
        output=usage.output,
        reasoning=usage.reasoning,
        audio_input=usage.audio_input,
        audio_output=usage.audio_output,
    )
