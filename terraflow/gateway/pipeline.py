"""The governed request, read top to bottom.

1. The steps run in the order of STAGES; each passes the request on or ends it with exactly one code.
2. A step that fails in a way nobody foresaw ends the request with its row's `fault`; a step that returns anything
   but a step's outcome has failed. Nothing that fails lets a request pass.
3. Closing (settle and record) always runs, exactly once, whatever happened before; a stream that flows is closed when
   it has ended.

Steps 1 to 3 (authenticate, request id, parse) come before governance and live in `http.service`; step 17, review,
comes with the review desk. The numbers are those of the product's documentation (docs/pipeline.md).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from terraflow.core.outcome import CONTINUE, Deliver, Refuse, Replay, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Closed, Ending, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import INTERRUPTED, Interrupted
from terraflow.gateway.stages.admit import admit
from terraflow.gateway.stages.answer_from_cache import answer_from_cache
from terraflow.gateway.stages.call_provider import call_provider
from terraflow.gateway.stages.check_answer import check_answer
from terraflow.gateway.stages.check_bundle import check_bundle
from terraflow.gateway.stages.claim_key import claim_key
from terraflow.gateway.stages.classify import classify
from terraflow.gateway.stages.close import close
from terraflow.gateway.stages.limit_rate import limit_rate
from terraflow.gateway.stages.permit_tools import permit_tools
from terraflow.gateway.stages.plan_routes import plan_routes
from terraflow.gateway.stages.record_intent import record_intent
from terraflow.gateway.stages.resolve_workload import resolve_workload
from terraflow.gateway.stages.settle_flow import settle_flow
from terraflow.ports.store import StoreUnavailable

log = logging.getLogger("terraflow.pipeline")


class Stage(msgspec.Struct, frozen=True):
    """One step: its number in the documentation, what it does, and what its failure means."""

    step: int
    run: Callable[[Plane, Exchange], Awaitable[StepOutcome]]
    fault: Governed


# fmt: off
STAGES: tuple[Stage, ...] = (
    Stage(4,  check_bundle,       fault=Governed.BUNDLE_INVALID),
    Stage(5,  resolve_workload,   fault=Governed.INTERNAL_ERROR),
    Stage(6,  claim_key,          fault=Governed.INTERNAL_ERROR),
    Stage(7,  limit_rate,         fault=Governed.INTERNAL_ERROR),
    Stage(8,  admit,              fault=Governed.INTERNAL_ERROR),
    Stage(9,  permit_tools,       fault=Governed.INTERNAL_ERROR),
    Stage(10, classify,           fault=Governed.INTERNAL_ERROR),
    Stage(11, plan_routes,        fault=Governed.POLICY_EVALUATION_ERROR),
    Stage(12, answer_from_cache,  fault=Governed.INTERNAL_ERROR),
    Stage(13, record_intent,      fault=Governed.EVIDENCE_UNAVAILABLE),  # and 14, spend: one transaction
    Stage(15, call_provider,      fault=Governed.INTERNAL_ERROR),
    Stage(16, check_answer,       fault=Governed.INTERNAL_ERROR),
)
# fmt: on


async def govern(plane: Plane, x: Exchange) -> Closed | None:
    """Run the steps and close the request; None when a stream flows, which `end_flow` must close."""
    plane.running.opened(x.request_id, x.presence)
    ending = await _steps(plane, x)
    if x.flow is None:
        return await close(plane, x, ending)
    return None if ending is None else await end_flow(plane, x, ending)


async def end_flow(plane: Plane, x: Exchange, ending: Ending) -> Closed:
    """Close a request whose stream has ended: whole (None), or broken off for the reason given. Whatever fails on the
    way ends it as a fault, and closes it all the same."""
    assert x.flow is not None
    try:
        await x.flow.aclose()
    except Exception as fault:
        log.error("leaving a provider's stream failed: %s", place_of(fault))
        ending = Refuse(reason=Governed.INTERNAL_ERROR)
    try:
        await settle_flow(plane, x, ending)
    except Exception as fault:
        log.error("settling a stream failed: %s", place_of(fault))
        ending = Refuse(reason=Governed.INTERNAL_ERROR)
    return await close(plane, x, ending)


async def _steps(plane: Plane, x: Exchange) -> Ending:
    for stage in STAGES:
        try:
            outcome = await stage.run(plane, x)
        except StoreUnavailable:
            return Refuse(reason=Governed.EVIDENCE_UNAVAILABLE)
        except Interrupted as interrupted:
            return INTERRUPTED[type(interrupted)]
        except Exception as fault:
            # The type and place of a fault are ours; its text may hold a request's content, and stays out.
            log.error("step %d failed: %s", stage.step, place_of(fault))
            return Refuse(reason=stage.fault)
        if outcome is CONTINUE:
            continue
        kind = type(outcome)
        if kind is Refuse or kind is Replay:
            return outcome  # type: ignore[return-value]
        if kind is Deliver:
            return None
        log.error("step %d returned %s", stage.step, kind.__name__)
        return Refuse(reason=stage.fault)
    return None
