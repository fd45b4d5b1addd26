"""Where feeds write: the live hints of this process, or a hints server elsewhere.

1. No method waits and none raises for what the feed sends: a sink that cannot keep up says so in its own way.
2. `degrade` MUST leave what the replica holds up to now worth less than what comes after it, until `heal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from terraflow.hints.words import Report, Scope, Stats


class Sink(Protocol):
    """What a feed tells of one replica."""

    def ingest(self, report: Report) -> object:
        """It holds these blocks."""
        ...

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: Sequence[bytes]) -> object:
        """It holds these no longer."""
        ...

    def clear(self, tenant: str, model: str, replica: str) -> object:
        """It holds nothing, and its statistics are of another life."""
        ...

    def degrade(self, tenant: str, model: str, replica: str) -> None:
        """What it holds up to now is in doubt."""
        ...

    def heal(self, tenant: str, model: str, replica: str) -> None:
        """What it holds is certain again."""
        ...

    def stats(self, tenant: str, model: str, replica: str, stats: Stats) -> None:
        """What it says of itself."""
        ...

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None:
        """The labels by which topologies find it; empty ones take them back."""
        ...
