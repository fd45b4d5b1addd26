"""Step 15: call, and recover: retries inside the deadline, then the fallback graph, then the safe path."""

from __future__ import annotations

import random

from terraflow.contracts.plan import PlannedRoute, Role
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.attempts import open_trial
from terraflow.gateway.calling import call_once
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.recovery import NO_TIME_S, RECOVERY, Ended, Move, Retry, decide_next
from terraflow.gateway.routing import all_rest, take_route
from terraflow.gateway.trial import Rests, Why
from terraflow.ports.upstream import Failure, ProviderFailure

_JITTER = random.Random()  # noqa: S311 - it spreads retries, it guards nothing


FILTERED = "content_filter"
"""The finish reason of a choice that the vendor's own filter held back."""


async def call_provider(plane: Plane, x: Exchange) -> StepOutcome:
    """Try the plan's routes in order until one answers, or a row of the recovery table ends it, or all that are left
    rest."""
    assert x.plan is not None
    failed: ProviderFailure | None = None
    at, why, retries = x.first_route, Why.FIRST, 0
    while True:
        route = x.plan.routes[at]
        trial = await open_trial(plane, x, route, why, x.request_sent, route.worst_case_micro_usd)
        if isinstance(trial, Refuse):
            return trial
        if not isinstance(trial, Rests):
            failed = await call_once(plane, x, trial, flows=x.flows)
            if failed is None:
                return _answered(x, route)
            step = _next(plane, x, failed, at, retries)
            if type(step) is Ended:
                return _refusal(step.reason, failed)
            if type(step) is Retry:
                retries, why = retries + 1, Why.RETRY
                await _pause(plane, x, step.delay_s)
                continue
        taken = take_route(plane, x, at + 1)
        if taken is None:
            return all_rest(plane, x) if failed is None else _refusal(RECOVERY[failed.failure].ends_as, failed)
        at, retries = taken, 0
        why = Why.SAFE_PATH if x.plan.routes[at].role is Role.SAFE_PATH else Why.FALLBACK


def _next(plane: Plane, x: Exchange, failed: ProviderFailure, at: int, retries: int) -> Retry | Move | Ended:
    assert x.plan is not None
    now = plane.clock.monotonic()
    return decide_next(
        failed,
        retries=retries,
        tries_left=plane.limits.attempts_max - x.attempts_opened,
        routes_left=len(x.plan.routes) - at - 1,
        left_s=x.deadline - now,
        rests_s=plane.health.recovers_in_s(x.plan.routes[at].capability.id, now),
        jitter=_JITTER,
    )


async def _pause(plane: Plane, x: Exchange, delay_s: float) -> None:
    pauses = plane.clock.monotonic()
    try:
        with x.presence:
            # A timer may fire early, and what a provider asked for would not have passed.
            await plane.clock.sleep(delay_s + NO_TIME_S if delay_s else 0.0)
    finally:
        x.elsewhere_s += plane.clock.monotonic() - pauses


def _answered(x: Exchange, route: PlannedRoute) -> StepOutcome:
    x.answered_by = route
    if x.answer is not None and any(c.get("finish_reason") == FILTERED for c in x.answer.choices):
        x.answer = None
        return Refuse(reason=Governed.CONTENT_FILTERED, detail="answer")
    if len(x.attempts) > (0 if x.flow is not None else 1):
        x.reasons.append(Governed.PROVIDER_ERROR_RECOVERED)
    if route.role is Role.SAFE_PATH:
        x.reasons.append(Governed.SAFE_PATH_USED)
    return CONTINUE


def _refusal(reason: Governed, failed: ProviderFailure) -> Refuse:
    if failed.failure is Failure.UNSUPPORTED_FIELD:
        return Refuse(reason=reason, detail="FIELD_NOT_SUPPORTED", details={"fields": list(failed.fields)})
    return Refuse(reason=reason, detail=failed.failure.value)
