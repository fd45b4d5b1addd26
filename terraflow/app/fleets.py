"""What advises the fleets of a plane: who is asked for hints, and how a fleet's prompts are taken apart.

1. A hint service that cannot be had, now or ever, keeps no plane from starting and no request from being served. A
   setting that names a file which is not there does: it is a mistake, and easily mended.
2. What a plane does not use is not loaded: gRPC is for a service elsewhere, the index for one inside.
3. Fleets that hints know by one name are one fleet to them, with the replicas of all. What leaves a bundle is taken
   back.
4. Loading a tokenizer holds up the loop, a large one for a second: it is loaded once for all fleets that use it, and
   again only when its files have changed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from terraflow.app.opening import CannotStart, naming
from terraflow.app.settings import BadSettings, Settings, environment
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability
from terraflow.hints.plane.content import SCHEME, ContentPrefixes
from terraflow.hints.plane.guarded import GuardedHints
from terraflow.hints.plane.tokenized import TokenPrefixes, Tokens
from terraflow.ports.hints import Prefixes, ReplicaHints
from terraflow.ports.runtime import Clock
from terraflow.providers.fleet import Advice

log = logging.getLogger("terraflow.fleets")


class Fleets:
    """The advice of every fleet. `stop` ends what was opened for it."""

    def __init__(
        self,
        settings: Settings,
        hints: ReplicaHints | None,
        *,
        follow: Callable[[Bundle], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._hints = hints
        self._deadline_s = settings.hint_deadline_ms / 1000
        self._tokenizers = Path(settings.tokenizers_dir) if settings.tokenizers_dir is not None else None
        self._follow = follow
        self._stop = stop
        self._joined: dict[tuple[str, str, str], list[str]] = {}
        self._loaded: WeakValueDictionary[object, Tokens] = WeakValueDictionary()

    def advise(self, capability: Capability) -> Advice:
        """The advice of a fleet's capability."""
        return Advice(prefixes=self._prefixes(capability), hints=self._hints, deadline_s=self._deadline_s)

    async def follow(self, bundle: Bundle) -> None:
        """A bundle comes into force: its replicas are told to the hints, and what they publish is read where this
        process does that."""
        if self._hints is not None:
            joined = members_of(bundle)
            for name in {*joined, *self._joined}:
                if joined.get(name) != self._joined.get(name):
                    self._hints.joined(*name, joined.get(name, []))
            self._joined = joined
        if self._follow is not None:
            await self._follow(bundle)

    async def close(self) -> None:
        """Let go of the hint service. Idempotent."""
        if self._hints is not None:
            await self._hints.close()
        if self._stop is not None:
            await self._stop()

    def _prefixes(self, capability: Capability) -> Prefixes:
        fleet = capability.fleet
        assert fleet is not None
        tenant, model = capability.hinted_as
        known_as = {"tenant": tenant, "model": model, "adapter": fleet.adapter}
        tokens = None if fleet.tokenizer is None else self._tokens(capability.id, fleet.tokenizer)
        if tokens is None:
            return ContentPrefixes(**known_as)
        assert fleet.tokenizer is not None and fleet.scheme is not None
        return TokenPrefixes(tokens, fleet.tokenizer, scheme=fleet.scheme, block_tokens=fleet.block_tokens, **known_as)

    def _tokens(self, capability: str, name: str) -> Tokens | None:
        """A tokenizer that cannot be had costs cache misses, not the bundle that names it."""
        from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFault, TokenizerFiles

        if name != BYTES and self._tokenizers is None:
            log.error("capability %s names the tokenizer %s: set tokenizers_dir to where it is", capability, name)
            return None
        where = BYTES if name == BYTES or self._tokenizers is None else str(self._tokenizers / name)
        files = (name, *_state_of(Path(where)))
        known = self._loaded.get(files)
        if known is not None:
            return known
        try:
            loaded = LoadedTokenizers({name: TokenizerFiles(where)})
        except TokenizerFault as fault:
            log.error("capability %s is without its tokenizer: %s", capability, fault)
            return None
        # The first prompt compiles what later ones find compiled, and should not be a caller's.
        loaded.messages(name, [{"role": "user", "content": "warm"}])
        self._loaded[files] = loaded
        return loaded


def members_of(bundle: Bundle) -> dict[tuple[str, str, str], list[str]]:
    """The replicas of a bundle's fleets that may be used, by the tenant, model and scheme that hints know them by."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for capability in bundle.capabilities.values():
        if (fleet := capability.fleet) is None:
            continue
        # Prompts that cannot be tokenized in time are looked up under our own scheme.
        for scheme in {SCHEME, fleet.scheme or SCHEME}:
            members = found.setdefault((*capability.hinted_as, scheme), set())
            members.update(replica.id for replica in fleet.replicas if replica.enabled)
    return {name: sorted(members) for name, members in found.items() if members}


async def open_fleets(settings: Settings, clock: Clock) -> Fleets:
    """The advice as the settings say. Raises CannotStart, KeyUnusable."""
    if settings.hints == "off":
        return Fleets(settings, None)
    if settings.hints == "inside":
        return await _inside(settings, clock)
    return Fleets(settings, GuardedHints(_remote(settings, clock), clock))


async def _inside(settings: Settings, clock: Clock) -> Fleets:
    """The service in this process. It listens only when it has a settings file of its own, which says where."""
    from terraflow.app.fleet_feeds import FleetFeeds
    from terraflow.app.hints import open_hints
    from terraflow.app.hints_settings import HintsSettings, load_hints_settings
    from terraflow.hints.deciding.assigned import Assigned
    from terraflow.hints.plane.inside import InsideHints
    from terraflow.hints.words import FLEET_SHARE_MIN

    file = settings.hints_file
    try:
        own = load_hints_settings(None if file is None else Path(file), environment())
    except BadSettings as bad:
        raise CannotStart(f"hints: {bad}") from None
    changed: dict[str, Any] = {}
    if own.minimum_matched_share is None:
        changed["minimum_matched_share"] = FLEET_SHARE_MIN
    if own.data_dir == HintsSettings().data_dir:
        changed["data_dir"] = str(Path(settings.data_dir) / "hints")
    own = msgspec.structs.replace(own, **changed)
    running = await open_hints(own, clock, listen=file is not None, assigned=Assigned())
    feeds = FleetFeeds(running.live, running.feeds_restored)
    running.read_beside(feeds)

    async def stop() -> None:
        await feeds.close()
        await running.stop()

    return Fleets(settings, GuardedHints(InsideHints(running.live), clock), follow=feeds.follow, stop=stop)


def _remote(settings: Settings, clock: Clock) -> ReplicaHints:
    from terraflow.app.grpc_noise import quiet_grpc

    quiet_grpc()
    import grpc

    from terraflow.hints.plane.client import RemoteHints

    credentials = token = None
    if settings.hints_tls:
        roots = None if settings.hints_ca_file is None else _authorities("hints_ca_file", settings.hints_ca_file)
        credentials = grpc.ssl_channel_credentials(roots)
    if settings.hints_token_file is not None:
        token = _read("hints_token_file", settings.hints_token_file).decode("ascii", "replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise CannotStart(f"hints_token_file: {settings.hints_token_file} holds no token")
    deadline_s = settings.hint_deadline_ms / 1000
    return RemoteHints(settings.hints, clock, try_timeout_s=deadline_s, credentials=credentials, token=token)


def _state_of(folder: Path) -> list[tuple[str, int, int]]:
    """What tells whether a folder's files have changed; nothing for one that is not there."""
    try:
        states = [(file.name, file.stat()) for file in folder.iterdir()]
    except OSError:
        return []
    return sorted((name, state.st_mtime_ns, state.st_size) for name, state in states)


def _authorities(setting: str, file: str) -> bytes:
    """gRPC takes whatever a file holds, and fails at each call."""
    roots = _read(setting, file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise CannotStart(f"{setting}: {file} holds no certificate in PEM") from None
    return roots


def _read(setting: str, file: str) -> bytes:
    with naming(setting, Path(file)):
        return Path(file).read_bytes()
