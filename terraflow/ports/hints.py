"""Route hints, as a fleet's provider sees them.

1. `hint` MUST return within `timeout_s` and MUST NOT raise: an absent, slow or broken service is a hint with no
   replicas and the code TIMEOUT or NO_HINT.
2. `sent` and `ended` MUST NOT wait and MUST NOT raise: they tell what was routed, so that a burst of one prefix stays
   together before any replica has reported it.
3. `prefix` MUST return within `timeout_s` and MUST NOT raise; it knows None of a prompt that it cannot take apart.
4. Nothing of a prompt is kept: hashes and counts only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from terraflow.core.reasons import Lookup


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a prompt's leading blocks under one scheme. `counts[i]` is the tokens of block i alone."""

    tenant: str
    model: str
    scheme: str
    adapter: str = ""
    hashes: Sequence[bytes] = ()
    counts: Sequence[int] = ()
    tokens: int = 0
    """Tokens of the whole prompt, the part block that has no hash included; 0 for unknown."""
    unreported: bool = False
    """No engine reports under this scheme: whoever sends a prompt reports it, when its call has ended."""


class Ranked(msgspec.Struct, frozen=True):
    """A replica of an answer, best first."""

    replica: str
    score: float
    matched_tokens: int


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. An empty ranking is always valid.

    Whoever answers has left out what is not worth going for: of a PREFIX_MATCH, replicas that hold no material share of
    the prompt.
    """

    reason: Lookup
    ranked: tuple[Ranked, ...] = ()


class Prefixes(Protocol):
    """How the prompts of one fleet are taken apart into blocks."""

    async def prefix(self, document: Mapping[str, Any], timeout_s: float) -> Prefix | None:
        """The blocks of a chat request in neutral form. See rule 3."""
        ...


class ReplicaHints(Protocol):
    """The route-hint service, in this process or behind gRPC."""

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        """Which replicas hold the prefix. See rule 1."""
        ...

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        """The last known pressure of each replica that reported one lately, 0…1; empty when nobody did."""
        ...

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        """All replicas that the fleets of this name have, known also before any has reported; none: there is no such
        fleet any more. MUST NOT wait or raise."""
        ...

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        """A request with this prefix has just been sent there, where the hint said that so much of it is held."""
        ...

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        """It ended; `held` is whether the replica worked on it and so holds its blocks."""
        ...

    def lost(self, prefix: Prefix, replica: str) -> None:
        """The replica could not be reached, and with its process its cache may be gone: whatever is known of it under
        the prefix's tenant and model is to be forgotten. MUST NOT wait or raise."""
        ...

    async def close(self) -> None:
        """Give back connections. Idempotent."""
        ...
