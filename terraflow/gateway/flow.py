"""A stream that flows: the provider's chunks on their way to the caller, counted as they pass."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from terraflow.gateway.assemble import Assembly
from terraflow.gateway.trial import Trial
from terraflow.ports.upstream import Answer, Chunk, ProviderFailure


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
