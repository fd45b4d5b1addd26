"""One call of a provider, from an open attempt to its end."""

from __future__ import annotations

from terraflow.gateway.attempts import trial_abandoned, trial_answered, trial_failed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.flow import Flow
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import Interrupted
from terraflow.gateway.trial import Trial
from terraflow.ports.upstream import Call, Failure, ProviderFailure


async def call_once(plane: Plane, x: Exchange, trial: Trial, *, flows: bool) -> ProviderFailure | None:
    """The call's answer in `x.answer`, or its beginning in `x.flow` when it flows; else the failure. The attempt is
    ended, except that of a flow, which ends with it."""
    provider = plane.providers.provider(trial.route.capability)
    call = call_of(plane, x, trial)
    if type(call) is not Call:
        raise TypeError("there is nothing to ask the provider")
    try:
        with x.presence:
            if flows:
                iterator = provider.stream(call)
                try:
                    first = await anext(iterator)
                except StopAsyncIteration:
                    raise ProviderFailure(Failure.CUT_OFF, reached=True) from None
                x.flow = Flow(trial, first, iterator, plane.clock, keep=x.keyed or x.cache_key is not None)
                plane.capacity.began(trial.route.capability.id, trial.started)
                return None
            answer = await provider.complete(call)
    except ProviderFailure as failed:
        trial_failed(plane, x, trial, failed, None)
        return failed
    except Interrupted:
        trial_abandoned(plane, x, trial, None)
        raise
    plane.capacity.answered(trial.route.capability.id, trial.started, answer.usage.output_total)
    trial_answered(plane, x, trial, answer.usage)
    x.answer = answer
    return None


def call_of(plane: Plane, x: Exchange, trial: Trial) -> Call:
    """What the provider is asked."""
    assert x.resolution is not None
    return Call(
        request=trial.request,
        output_tokens_max=trial.route.output_tokens_max,
        reasoning_budget_tokens=x.resolution.workload.contract.reasoning_budget_tokens,
        timeout_s=max(0.001, x.deadline - plane.clock.monotonic()),
        placed=trial.placed,
        failed_replicas=_failed_replicas(x, trial),
        connecting=trial.connects,
    )


def _failed_replicas(x: Exchange, trial: Trial) -> tuple[str, ...]:
    """The replicas of the trial's capability on which an earlier attempt failed."""
    capability = trial.route.capability.id
    return tuple(
        [
            attempt.placement.replica
            for attempt in x.attempts
            if attempt.placement is not None and attempt.failure is not None and attempt.capability == capability
        ]
    )
