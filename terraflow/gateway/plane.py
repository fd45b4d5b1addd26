"""What every step may reach: the ports, and the live state of one process.

1. Steps read it and call it; only wiring builds it.
2. Each piece of live state is bounded, and its bound is a setting.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from terraflow.classify.scan import Scanner
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.admission import Admission
from terraflow.gateway.capacity import Capacity
from terraflow.gateway.doorstep import Doorstep
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.health import Health
from terraflow.gateway.heartbeats import Heartbeats
from terraflow.gateway.rate import Rate
from terraflow.gateway.recover import Unrecorded
from terraflow.gateway.running import Running
from terraflow.gateway.turns import Turns
from terraflow.ports.runtime import Clock, Ids
from terraflow.ports.store import KeyHolder, Store
from terraflow.ports.upstream import Provider


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one request, however it comes. The defaults and their reasons stand in `app.settings`."""

    body_bytes_max: int
    body_values_max: int
    body_timeout_s: float
    deadline_ms_max: int
    scan_bytes_max: int
    attempts_max: int
    answer_keep_s: int
    key_keep_s: int


class BundleSource(Protocol):
    """Where the active bundle is read from, once a request."""

    def active(self) -> Bundle | Governed:
        """The verified active bundle, or the code that says why there is none."""
        ...


class ProviderSet(Protocol):
    """The providers of capabilities, asked for by definition: a request keeps the bundle that it began under, whatever
    a newer one has changed or dropped since. Each verb raises KeyError for a definition that was never in force."""

    def provider(self, capability: Capability) -> Provider:
        """The provider of exactly this definition."""
        ...

    def ready(self, capability: Capability) -> bool:
        """Whether what the capability needs from its surroundings, its secret above all, is there."""
        ...

    def inside_boundary(self, capability: Capability) -> bool:
        """Whether a private capability's address lies inside the private networks, as last resolved."""
        ...

    def under_pressure(self, capability: Capability) -> bool:
        """Whether every replica of a fleet that could take a call is above the pressure that its bundle allows, or none
        could take one. Asked of fleets alone."""
        ...


class Recovery(Protocol):
    """Whoever brings requests to their recorded end that could not be closed."""

    def ask(self, unrecorded: Unrecorded | None) -> None:
        """Some request's outcome is not recorded: see to it when the store is there again. `unrecorded` is what is
        known of it, None where not even that can be said. MUST NOT raise."""
        ...

    async def close_all(self) -> None:
        """The process ends, nothing runs any more and every verb has ended: close what has no outcome. Raises
        StoreUnavailable, or the fault that kept a request from being closed."""
        ...


class Telemetry(Protocol):
    """Who is told of every ended request."""

    def closed(self, x: Exchange, closed: Closed) -> None:
        """MUST NOT raise, wait, or keep anything of the request."""
        ...

    def turned_away(self, refuse: Refuse, request_id: str | None, caller: KeyHolder | None) -> None:
        """A request ended before it was governed. The same MUST NOT."""
        ...


class Plane(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one running plane."""

    clock: Clock
    ids: Ids
    store: Store
    bundles: BundleSource
    providers: ProviderSet
    scanner: Scanner
    rate: Rate
    doorstep: Doorstep
    admission: Admission
    capacity: Capacity
    health: Health
    running: Running
    heartbeats: Heartbeats
    limits: Limits
    recovery: Recovery
    telemetry: Telemetry
    turns: Turns = msgspec.field(default_factory=Turns)
