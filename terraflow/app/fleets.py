"""What advises the fleets of a plane: who is asked for hints, and how a fleet's prompts are taken apart.

1. A hint service that cannot be had, now or ever, keeps no plane from starting and no request from being served. A
   setting that names a file which is not there does: it is a mistake, and easily mended.
2. What a plane does not use is not loaded: gRPC is for a service elsewhere, the index for one inside.
"""

from __future__ import annotations

from pathlib import Path

from terraflow.app.opening import CannotStart, naming
from terraflow.app.settings import Settings
from terraflow.contracts.capability import Capability
from terraflow.hints.content import SCHEME, ContentPrefixes
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
        fleet = capability.fleet
        assert fleet is not None
        if self._hints is not None:
            names = [replica.id for replica in fleet.replicas if replica.enabled]
            model = fleet.hint_model or capability.model
            self._hints.joined(fleet.hint_tenant, model, fleet.scheme or SCHEME, names)
        return Advice(prefixes=_prefixes(capability), hints=self._hints, deadline_s=self._deadline_s)

    async def close(self) -> None:
        """Let go of the hint service. Idempotent."""
        if self._hints is not None:
            await self._hints.close()


def open_fleets(settings: Settings, clock: Clock) -> Fleets:
    """The advice as the settings say. Raises CannotStart."""
    deadline_s = settings.hint_deadline_ms / 1000
    if settings.hints == "off":
        return Fleets(None, deadline_s)
    if settings.hints == "inside":
        return Fleets(_inside(clock), deadline_s)
    return Fleets(_remote(settings, clock, deadline_s), deadline_s)


def _inside(clock: Clock) -> ReplicaHints:
    from terraflow.hints.assigned import Assigned
    from terraflow.hints.index.index import Index
    from terraflow.hints.inside import InsideHints
    from terraflow.hints.live import LiveHints
    from terraflow.hints.rank import RankerConfig

    return InsideHints(
        LiveHints(index=Index(), clock=clock, ranker=RankerConfig(), assigned=Assigned(), share_min=0.05)
    )


def _remote(settings: Settings, clock: Clock, deadline_s: float) -> ReplicaHints:
    import grpc

    from terraflow.hints.client import RemoteHints

    credentials = token = None
    if settings.hints_tls:
        roots = None if settings.hints_ca_file is None else _read("hints_ca_file", settings.hints_ca_file)
        credentials = grpc.ssl_channel_credentials(roots)
    if settings.hints_token_file is not None:
        token = _read("hints_token_file", settings.hints_token_file).decode("ascii", "replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise CannotStart(f"hints_token_file: {settings.hints_token_file} holds no token")
    return RemoteHints(settings.hints, clock, try_timeout_s=deadline_s, credentials=credentials, token=token)


def _read(setting: str, file: str) -> bytes:
    with naming(setting, Path(file)):
        return Path(file).read_bytes()


def _prefixes(capability: Capability) -> Prefixes:
    fleet = capability.fleet
    assert fleet is not None
    return ContentPrefixes(tenant=fleet.hint_tenant, model=fleet.hint_model or capability.model, adapter=fleet.adapter)
