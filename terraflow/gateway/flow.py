"""A stream that flows: the provider's chunks on their way to the caller, counted as they pass."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from terraflow.gateway.assemble import Assembly
from terraflow.gateway.trial import Trial
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Answer, Chunk, ProviderFailure


class Flow:
    """An async iterator over the chunks of one answer. `first_token_s` are the seconds from the call to the first chunk
    in which the model wrote something; None until then."""

    __slots__ = (
        "_clock",
        "_first",
        "_hash",
        "_iterator",
        "assembly",
        "capability",
        "failed",
        "first_token_s",
        "sent_bytes",
        "trial",
    )

    def __init__(self, trial: Trial, first: Chunk, iterator: AsyncIterator[Chunk], clock: Clock, *, keep: bool) -> None:
        self.capability = trial.route.capability.id
        self.trial = trial
        self.assembly = Assembly(keep=keep)
        self.failed: ProviderFailure | None = None
        self.first_token_s: float | None = None
        self.sent_bytes = 0
        self._clock = clock
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
        if self.first_token_s is None and self.assembly.output_bytes:
            self.first_token_s = self._clock.monotonic() - self.trial.started
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
