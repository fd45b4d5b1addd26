"""The settings of the route-hint service: one TOML file, each flat key overridden by `TERRAFLOW_HINTS_<KEY>`.

1. They are the service's own, also when it runs inside a plane: a plane's settings say where this file is.
2. The bounds that an operator's own numbers decide are here, with their defaults and the reasons for them. What bounds
   strangers and single calls alike everywhere is a constant beside the code that keeps it (ARCHITECTURE.md lists them).
3. Alone, answers are the reference's: what a fleet adds to them (`minimum_matched_share`, `assignment_memory`) is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.app.loading import BadSettings, Source, check_tls_pair, is_loopback, load
from terraflow.app.settings import SOURCE as PLANE
from terraflow.hints.deciding.rank import RankerConfig
from terraflow.hints.feed.settings import FeedSettings
from terraflow.hints.service.identity import Binding

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Weight = Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]

_PREFIX = "TERRAFLOW_HINTS_"
_INJECTED = ("TERRAFLOW_HINTS_PORT", "TERRAFLOW_HINTS_SERVICE_")


class HintsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting. A field's docstring is its documentation (docs/reference/hints-settings.md)."""

    data_dir: str = "terraflow-hints-data"
    """Where the snapshot and the internal listener's token are kept."""
    bind_host: str = "127.0.0.1"
    """The address of the gRPC port. Any but a loopback address needs TLS files, or `insecure_plaintext`."""
    bind_port: Port = 50051
    """The gRPC port: all RPCs, health and reflection; 0 picks a free one."""
    http_host: str = "127.0.0.1"
    """The address of `/healthz`, `/readyz` and `/metrics`."""
    http_port: Port = 50052
    """Their port; 0 picks a free one."""
    internal_host: str = "127.0.0.1"
    """The address of `/snapshot`, `/policy`, `/probe` and `/explain`, for operators only."""
    internal_port: Port = 50053
    """Their port; 0 picks a free one."""
    internal_token_file: str | None = None
    """The bearer token of that listener; none given: `internal.token` of the data folder, made when it is not there."""
    tls_cert_file: str | None = None
    """A PEM certificate chain; with `tls_key_file` the gRPC port speaks TLS. Both are read again when they change."""
    tls_key_file: str | None = None
    """The certificate's PEM private key."""
    client_ca_file: str | None = None
    """PEM certificates that sign clients' certificates; needs TLS. A client's names are looked up in `identities`."""
    client_cert_required: bool = False
    """Turn away connections without a client certificate."""
    token_keys: tuple[str, ...] = ()
    """Files of the public keys that may sign tokens (`terraflow hints token`)."""
    identities: tuple[Binding, ...] = ()
    """Tables `[[identities]]` for client certificates: `name` (a URI or DNS alternative name; the
    common name of one without any), `tenants`, `replicas`."""
    anonymous_readers: bool = True
    """Answer lookups of callers without an identity, for every tenant: gateways of the contract show none."""
    insecure_producers: bool = False
    """Take reports and events of anybody, for every tenant and replica. For a network that only producers reach."""
    insecure_plaintext: bool = False
    """Serve plaintext on an address that is reachable from outside, as behind a proxy that ends TLS."""
    connections_max: Positive = 1_024
    """Connections of the gRPC port, in all: clients of the contract keep one each."""
    connections_per_address_max: Positive = 256
    """Connections from one address, so that none takes them all; behind a proxy, raise it to `connections_max`."""
    calls_per_connection_max: Positive = 256
    """Calls of one connection at a time."""
    report_streams_max: Positive = 1_024
    """Open ReportCacheState streams: one a producer."""
    watch_streams_max: Positive = 64
    """Open StreamCacheEvents streams, and as many of StreamMetrics: each is work for every change, or scrape."""
    entries_max: Positive = 1_000_000
    """Entries (replica × block) of the index, at up to 180 bytes each; beyond it the oldest go."""
    keys_per_tenant_max: Positive | None = None
    """The quota, in distinct blocks, of every tenant to which no CacheTenant gives one; beyond it that tenant's own
    oldest go, so that none pushes others out. None given: no quota."""
    ttl_s: Seconds = 1800.0
    """How long an entry counts after it was last reported; a policy may say otherwise for its tenant."""
    sweep_interval_s: Seconds = 60.0
    """How often what is past its TTL is removed. It counts for nothing from that instant, swept or not."""
    snapshot: bool = True
    """Keep the index on disk, so that a restarted service answers at once."""
    snapshot_file: str | None = None
    """Where; none given: `index.snapshot` of the data folder."""
    snapshot_interval_s: Seconds = 60.0
    """How often it is written, in the background: what a crash loses is learnt again from the engines."""
    policy_dir: str | None = None
    """A folder of manifests (CachePolicy, CacheTenant, PromptTemplate, PDTopology), watched for changes."""
    feeds: tuple[FeedSettings, ...] = ()
    """Tables `[[feeds]]`, one an engine whose KV events the service hears; their fields are in the page on feeds."""
    namespace_key_file: str | None = None
    """32 bytes or more that key `tenant_namespace` of RenderTemplate; none given: it is empty."""
    block_tokens: Positive = 16
    """Tokens of a block where the service hashes tokens itself: the engines' own block size."""
    tokenizers: dict[str, str] = {}
    """A table of models and the folders that hold their tokenizer and chat template, for lookups by text."""
    pressure_weight: Weight = 1.0
    """How much of a score a fully loaded replica loses; 0 ignores pressure."""
    slo_tight_ttft_ms: Annotated[int, Meta(ge=0)] = 200
    """Below this time to the first token a request is in a hurry; 0: none is."""
    slo_tight_bias: Weight = 1.0
    """What freshness adds to the score of a request in a hurry."""
    tenant_hot_max_age_s: Weight = 300.0
    """How old statistics may be for TENANT_HOT; 0 switches it off."""
    tenant_hot_min_hit_rate: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """The hit rate from which a replica is hot."""
    tier_weights: dict[str, Weight] = {}
    """A table of factors for matches in T1, T2 and T3; 1 where none is given, so that scores are the reference's."""
    degraded_weight: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """The factor of what a replica held before its event stream was lost."""
    minimum_matched_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The least share of a request that a match must hold; 0 is the reference. None given: 0.05 inside a plane, else
    0."""
    assignment_memory: bool = False
    """Let affinity take the less loaded of two candidates, by what was just routed. Lookups then have a side effect."""
    drain_s: Positive = 5
    """How long calls may take to finish after SIGTERM."""
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"
    """Severity from which lines are written to standard error."""

    def ranker(self) -> RankerConfig:
        """The ranking's part of the settings."""
        return RankerConfig(
            pressure_weight=self.pressure_weight,
            slo_tight_ttft_ms=self.slo_tight_ttft_ms,
            slo_tight_bias=self.slo_tight_bias,
            tenant_hot_max_age_s=self.tenant_hot_max_age_s,
            tenant_hot_min_hit_rate=self.tenant_hot_min_hit_rate,
            tier_weights={_TIERS[name]: weight for name, weight in self.tier_weights.items()},
            degraded_weight=self.degraded_weight,
        )

    def snapshot_path(self) -> Path:
        """Where the snapshot is kept."""
        return Path(self.snapshot_file or Path(self.data_dir) / "index.snapshot")

    def token_path(self) -> Path:
        """Where the internal listener's token is."""
        return Path(self.internal_token_file or Path(self.data_dir) / "internal.token")


_TIERS = {"T1": 1, "T2": 2, "T3": 3}


def _elsewhere(name: str) -> bool:
    # A plane's own `hints_…` have our prefix, too; the others Kubernetes injects for a service called terraflow-hints.
    return not PLANE.elsewhere(name) or name.startswith(_INJECTED)


SOURCE = Source(prefix=_PREFIX, elsewhere=_elsewhere, page="docs/reference/hints-settings.md")


def load_hints_settings(file: Path | None, environment: Mapping[str, str], **flags: object) -> HintsSettings:
    """The settings of a file, overridden by the environment, overridden by `flags` that are not None.

    Raises BadSettings.
    """
    settings, _ = load(HintsSettings, SOURCE, file, environment, flags)
    check_tls_pair(settings.tls_cert_file, settings.tls_key_file)
    unknown = sorted(set(settings.tier_weights) - set(_TIERS))
    if unknown:
        raise BadSettings(f"tier_weights names {unknown[0]}: the tiers are T1, T2 and T3")
    if settings.client_ca_file is not None and settings.tls_cert_file is None:
        raise BadSettings("client_ca_file is for TLS: give tls_cert_file and tls_key_file as well")
    if settings.client_cert_required and settings.client_ca_file is None:
        raise BadSettings("client_cert_required needs client_ca_file, which says whose certificates count")
    if settings.identities and settings.client_ca_file is None:
        raise BadSettings("identities are for client certificates: give client_ca_file, which says whose count")
    if not is_loopback(settings.internal_host) and not settings.insecure_plaintext:
        raise BadSettings(
            f"internal_host {settings.internal_host} is reachable from outside, and its token would pass in the clear:"
            " give a loopback address, or say insecure_plaintext = true"
        )
    if not is_loopback(settings.bind_host) and settings.tls_cert_file is None and not settings.insecure_plaintext:
        raise BadSettings(
            f"bind_host {settings.bind_host} is reachable from outside: give tls_cert_file and tls_key_file, or say"
            " insecure_plaintext = true"
        )
    return settings
