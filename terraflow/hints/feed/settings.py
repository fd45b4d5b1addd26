"""What a feed is configured with: a `[[feeds]]` table, or the options of `terraflow hints subscribe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.hints.feed.stream import Limits
from terraflow.hints.words import Scope

Name = Annotated[str, Meta(min_length=1, max_length=1_024)]
Endpoint = Annotated[str, Meta(pattern="^(tcp|ipc|inproc)://.+", description="tcp://HOST:PORT or ipc://PATH")]
Seconds = Annotated[float, Meta(gt=0, le=3_600)]
Positive = Annotated[int, Meta(ge=1)]

FRESH_S = 600.0


class FeedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine's event socket, and as which replica its blocks are written."""

    replica: Name
    """The replica's id, as gateways route to it. A rank that the engine names is `replica/dp<rank>` unless `ranks` says
    otherwise."""
    model: Name
    """The model of its keys."""
    tenant: Name
    """The tenant of its keys."""
    scheme: Name
    """The hash scheme of its keys: what gateways send as `hash_scheme`."""
    endpoint: Endpoint
    """Where the engine publishes, such as `tcp://10.0.0.5:5557`."""
    replay_endpoint: Endpoint | None = None
    """Where it answers replays. Without one, what is lost stays lost, and the source is degraded."""
    topic: str = ""
    """Only what is published under a topic that begins so."""
    loras: Mapping[str, Name] = {}
    """Adapter names by the engine's LoRA ids, for engines that send no names."""
    ranks: Mapping[str, Name] = {}
    """Replica ids by data-parallel rank, where they are not `replica/dp<rank>`; `"0" = "replica"` for an engine that
    names a rank although it has one only."""
    labels: Mapping[str, str] = {}
    """Labels by which topologies find the replica."""
    metrics_url: Annotated[str, Meta(pattern="^https?://", description="an http:// or https:// address")] | None = None
    """The engine's Prometheus page, for pressure and hit rate. None: no statistics."""
    cache_bytes: Annotated[int, Meta(ge=0)] = 0
    """The size of the engine's cache, to tell its use in bytes; engines give a share."""
    heartbeat_s: Seconds = 10.0
    """An engine without a connection and an event for two of these is lost, and degraded, whatever its metrics say."""
    fresh_s: Seconds = FRESH_S
    """How often what an engine still holds is told again, so that it never runs out of its TTL: a third of the
    service's own. A tenant whose `evictionTTL` is shorter needs a third of that."""
    scrape_interval_s: Seconds = 5.0
    """How often the metrics page is read."""
    replay_timeout_s: Seconds = 2.0
    """How long a replay may stay silent. Engines answer between two steps of the model."""
    retry_s: Seconds = 0.5
    """How long to wait before asking for a replay again; doubled each time."""
    stale_retry_s: Seconds = 30.0
    """How long a stale source waits before it asks again; doubled each time, up to ten minutes."""
    receive_max: Positive = 10_000
    """Messages that wait in the socket; beyond it they are lost, which is a gap."""
    buffered_max: Positive = 10_000
    """Batches kept during a replay; beyond it the replay is given up."""
    blocks_max: Positive = 262_144
    """Blocks of one rank that are known by their engine's hash; beyond it the oldest are withdrawn."""
    ranks_max: Annotated[int, Meta(ge=1, le=1_024)] = 64
    """Ranks that one endpoint may name; frames of more are dropped and counted."""

    @property
    def name(self) -> str:
        """What it is called in logs, counters and on disk."""
        return f"{self.tenant}/{self.model}/{self.replica}"

    @property
    def scope(self) -> Scope:
        """Where its entries go."""
        return Scope(self.tenant, self.model, self.scheme)

    def lora_names(self) -> dict[int, str]:
        """`loras` by number. Raises ValueError for a key that is none."""
        return {int(number): name for number, name in self.loras.items()}

    def replica_of(self, rank: int | None) -> str:
        """The replica id of a rank."""
        if rank is None:
            return self.replica
        return self.ranks.get(str(rank), f"{self.replica}/dp{rank}")

    def limits(self) -> Limits:
        """The bounds of its streams."""
        return Limits(buffered_max=self.buffered_max)
