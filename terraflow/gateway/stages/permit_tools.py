"""Step 9: every offered tool is on the contract's list."""

from __future__ import annotations

from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane


async def permit_tools(plane: Plane, x: Exchange) -> StepOutcome:
    """TOOL_NOT_PERMITTED for any tool that the contract does not list, before anything is classified."""
    assert x.resolution is not None
    if not x.request.tool_names:
        return CONTINUE
    allowed = x.resolution.workload.tools
    if all(name in allowed for name in x.request.tool_names):
        return CONTINUE
    return Refuse(reason=Governed.TOOL_NOT_PERMITTED)
