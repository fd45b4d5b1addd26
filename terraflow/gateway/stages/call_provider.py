"""Step 15: call, and recover: retries inside the deadline, then the fallback graph, then the safe path."""

from __future__ import annotations

import random

from terraflow.contracts.plan import Role
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.attempts import open_trial
from terraflow.gateway.calling import call_once
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.recovery import Ended, Retry, decide_next
from terraflow.gateway.routing import hold, take_route
from terraflow.gateway.trial import Why
from terraflow.ports.upstream import Failure, ProviderFailure

_JITTER = random.Random()  # noqa: S311 - it spreads retries, it guards nothing


FILTERED = "content_filter"
"""The finish reason of a choice that the vendor's own filter held back."""


async def call_provider(plane: Plane, x: Exchange) -> StepOutcome:
    """Try the plan's routes in order until one answers, or a row of the recovery table ends it."""
    assert x.plan is not None
    at, why, retries = x.first_route, Why.FIRST, 0
    while True:
        route = x.plan.routes[at]
        trial = await open_trial(plane, x, route, why, x.request_sent, route.worst_case_micro_usd)
        if isinstance(trial, Refuse):
            return trial
        failed = await call_once(plane, x, trial, flows=x.flows)
        if failed is None:
            x.answered_by = route
            if x.answer is not None and any(c.get("finish_reason") == FILTERED for c in x.answer.choices):
                x.answer = None
                return Refuse(reason=Governed.CONTENT_FILTERED, detail="answer")
            if len(x.attempts) > (0 if x.flow is not None else 1):
                x.reasons.append(Governed.PROVIDER_ERROR_RECOVERED)
            if route.role is Role.SAFE_PATH:
                x.reasons.append(Governed.SAFE_PATH_USED)
            return CONTINUE
        step = decide_next(
            failed,
            retries=retries,
            tries_left=plane.limits.attempts_max - x.attempts_opened,
            routes_left=len(x.plan.routes) - at - 1,
            left_s=x.deadline - plane.clock.monotonic(),
            jitter=_JITTER,
        )
        if type(step) is Ended:
            return _refusal(step, failed)
        if type(step) is Retry:
            retries, why = retries + 1, Why.RETRY
            pauses = plane.clock.monotonic()
            try:
                with x.presence:
                    await plane.clock.sleep(step.delay_s)
            finally:
                x.elsewhere_s += plane.clock.monotonic() - pauses
            hold(plane, x, route.capability)
        else:
            taken = take_route(plane, x, at + 1)
            at, retries = at + 1 if taken is None else taken, 0
            why = Why.SAFE_PATH if x.plan.routes[at].role is Role.SAFE_PATH else Why.FALLBACK


def _refusal(step: Ended, failed: ProviderFailure) -> Refuse:
    if failed.failure is Failure.UNSUPPORTED_FIELD:
        return Refuse(reason=step.reason, detail="FIELD_NOT_SUPPORTED", details={"fields": list(failed.fields)})
    return Refuse(reason=step.reason, detail=failed.failure.value)
