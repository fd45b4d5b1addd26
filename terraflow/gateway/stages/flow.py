"""A stream that flows: the provider's chunks on their way to the caller, counted as they pass.

1. The attempt is ended exactly once, when the flow is settled: answered, failed or abandoned.
2. What a broken-off stream used is the provider's figure if it gave one, else our count, marked `estimated`.
3. A stream that the provider broke off, or that holds what it should not, ends as a refusal, never as an answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.assemble import Assembly
from terraflow.gateway.attempts import Trial, trial_abandoned, trial_answered, trial_failed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.recovery import NO_TIME_S, RECOVERY
from terraflow.ports.upstream import Answer, Chunk, Failure, ProviderFailure, Usage


class Flow:
    """An async iterator over the chunks of one answer."""

    __slots__ = ("_first", "_hash", "_iterator", "assembly", "capability", "failed", "sent_bytes", "trial")

    def __init__(self, trial: Trial, first: Chunk, iterator: AsyncIterator[Chunk], *, keep: bool) -> None:
        self.capability = trial.route.capability.id
        self.trial = trial
        self.assembly = Assembly(keep=keep)
        self.failed: ProviderFailure | None = None
        self.sent_bytes = 0
        self._hash = hashlib.sha256()
        self._first: Chunk | None = first
        self._iterator = iterator

    def __aiter__(self) -> Flow:
        return self

    async def __anext__(self) -> Chunk:
        chunk, self._first = self._first, None
        if chunk is None:
            try:
                chunk = await self._iterator.__anext__()
            except ProviderFailure as failed:
                self.failed = failed
                raise
        self.assembly.add(chunk)
        return chunk

    def sent(self, event: bytes) -> None:
        """Count bytes that went to the caller."""
        self.sent_bytes += len(event)
        self._hash.update(event)

    def digest(self) -> str:
        """SHA-256 of the bytes that went to the caller, in hexadecimal."""
        return self._hash.hexdigest()

    @property
    def answer(self) -> Answer | None:
        """The whole answer, if it was kept."""
        return self.assembly.answer()

    async def aclose(self) -> None:
        """Close the provider's connection. Idempotent."""
        close: Any = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


def flow_failed(failed: ProviderFailure, left_s: float) -> Refuse:
    """How a stream ends that the provider broke off: no other route can take over an answer that has begun."""
    if failed.failure is Failure.TIMEOUT and left_s <= NO_TIME_S:
        return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="streaming")
    return Refuse(reason=RECOVERY[failed.failure].ends_as, detail=failed.failure.value)


async def settle_flow(plane: Plane, x: Exchange, ending: Refuse | None) -> None:
    """End the attempt behind the flow."""
    flow = x.flow
    assert flow is not None
    ours = Usage.counted(flow.trial.request.size_bytes, flow.assembly.output_bytes)
    usage: Usage | None = flow.assembly.usage
    if flow.failed is not None:
        trial_failed(plane, x, flow.trial, flow.failed, usage or ours)
    elif ending is not None:
        trial_abandoned(plane, x, flow.trial, usage or ours)
    else:
        x.answered_by = flow.trial.route
        trial_answered(plane, x, flow.trial, usage or ours)
