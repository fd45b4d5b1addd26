"""What advises the fleets of a plane: who is asked for hints, and how a fleet's prompts are taken apart.

1. A hint service that cannot be had, now or ever, keeps no plane from starting and no request from being served.
"""

from __future__ import annotations

from terraflow.app.settings import Settings
from terraflow.contracts.capability import Capability
from terraflow.hints.content import ContentPrefixes
from terraflow.ports.hints import Prefixes, ReplicaHints
from terraflow.ports.runtime import Clock
from terraflow.providers.fleet import Advice


class Fleets:
    """The advice of every fleet."""

    def __init__(self, hints: ReplicaHints | None, deadline_s: float) -> None:
        self._hints = hints
        self._deadline_s = deadline_s

    def advise(self, capability: Capability) -> Advice:
        """The advice of a fleet's capability."""
        return Advice(prefixes=_prefixes(capability), hints=self._hints, deadline_s=self._deadline_s)

    async def close(self) -> None:
        """Let go of the hint service. Idempotent."""
        if self._hints is not None:
            await self._hints.close()


def open_fleets(settings: Settings, clock: Clock) -> Fleets:
    """The advice as the settings say."""
    del clock
    return Fleets(None, settings.hint_deadline_ms / 1000)


def _prefixes(capability: Capability) -> Prefixes:
    fleet = capability.fleet
    assert fleet is not None
    return ContentPrefixes(tenant=fleet.hint_tenant, model=fleet.hint_model or capability.model, adapter=fleet.adapter)
