"""Step 18 for a stream that flowed: what its attempt came to, before the request is closed.

1. The attempt is ended exactly once: answered, failed or abandoned.
2. What a stream used is the provider's figure if it gave one, else our count, marked `estimated`; an answer that is
   kept says the same.
3. A stream that the provider broke off ends as a refusal, never as an answer.
"""

from __future__ import annotations

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.attempts import trial_abandoned, trial_answered, trial_failed
from terraflow.gateway.exchange import Ending, Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.recovery import NO_TIME_S, RECOVERY
from terraflow.ports.upstream import Failure, ProviderFailure, Usage


def flow_failed(failed: ProviderFailure, left_s: float) -> Refuse:
    """How a stream ends that the provider broke off: no other route can take over an answer that has begun."""
    if failed.failure is Failure.TIMEOUT and left_s <= NO_TIME_S:
        return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="streaming")
    return Refuse(reason=RECOVERY[failed.failure].ends_as, detail=failed.failure.value)


async def settle_flow(plane: Plane, x: Exchange, ending: Ending) -> None:
    """End the attempt behind the flow."""
    flow = x.flow
    assert flow is not None
    came = flow.assembly
    usage = came.usage = came.usage or Usage.counted(flow.trial.request, came.output_bytes)
    if flow.failed is not None:
        trial_failed(plane, x, flow.trial, flow.failed, usage)
    elif ending is not None:
        trial_abandoned(plane, x, flow.trial, usage)
    else:
        trial_answered(plane, x, flow.trial, usage)
