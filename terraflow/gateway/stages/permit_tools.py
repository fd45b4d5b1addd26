"""Step 9: every offered tool is on the contract's list."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane

_PLACES_MAX = 3


async def permit_tools(plane: Plane, x: Exchange) -> StepOutcome:
    """TOOL_NOT_PERMITTED for any tool that the contract does not list, before anything is classified. The details say
    where the first of them stand, never what they are called."""
    assert x.resolution is not None
    if not x.request.tool_names:
        return CONTINUE
    allowed = x.resolution.workload.tools
    barred = [place for place, name in enumerate(x.request.tool_names) if name not in allowed]
    if not barred:
        return CONTINUE
    offered = len(x.request.document.get("tools") or ())
    places = [f"tools[{place}]" for place in barred[:_PLACES_MAX] if place < offered]
    return Refuse(reason=Governed.TOOL_NOT_PERMITTED, details={"tools": places} if places else {})
