"""The settings of a plane: one TOML file with flat keys, each overridden by `TERRAFLOW_<KEY>`.

1. This module is the only reader of the environment; a capability's secrets are read through it by name.
2. An unknown key refuses to start, in the file and in the environment, except the names that Kubernetes injects for
   a service called terraflow (`TERRAFLOW_PORT*`, `TERRAFLOW_SERVICE_*`), and the hint service's (`TERRAFLOW_HINTS_*`).
3. Every bound is here, with its default and the reason for it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.app.loading import BadSettings, Source, check_tls_pair, is_loopback, load

__all__ = ["BadSettings", "Settings", "environment", "load_settings", "read_secret"]

Positive = Annotated[int, Meta(ge=1)]

_PREFIX = "TERRAFLOW_"
_INJECTED = ("TERRAFLOW_PORT", "TERRAFLOW_SERVICE_")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting. A field's docstring is its documentation (docs/reference/settings.md)."""

    data_dir: str = "terraflow-data"
    """Where the database, the keys and the high-water mark are kept."""
    bind_host: str = "127.0.0.1"
    """The address to listen on. Any but a loopback address needs TLS files or `trusted_proxies`."""
    bind_port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """The port; 0 picks a free one."""
    tls_cert_file: str | None = None
    """A PEM certificate chain; with `tls_key_file` the plane speaks TLS itself."""
    tls_key_file: str | None = None
    """The certificate's PEM private key."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks of the proxies that end TLS in front; connections from anywhere else are refused."""
    bundle_keys: tuple[str, ...] = ()
    """Files of the public keys that may sign bundles; none given: `keys/bundle.pub.pem` of the data folder."""
    log_key_file: str | None = None
    """The Ed25519 private key that signs checkpoints; none given: `keys/log.pem` of the data folder."""
    answer_key_file: str | None = None
    """32 bytes, base64, that encrypt stored answers at rest; none given: they are stored in the clear."""
    high_water_dir: str | None = None
    """Where the signed high-water mark is kept; put it on another disk than the data folder to notice more."""
    private_networks: tuple[str, ...] = (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "127.0.0.0/8",
        "::1/128",
    )
    """The networks that count as inside the boundary: a private capability's address must lie in them."""
    body_bytes_max: Positive = 8 * 1024 * 1024
    """A request's body: room for a few images; what is scanned as text is bounded by `scan_bytes_max`."""
    body_values_max: Positive = 100_000
    """A body's values and names: parsed and looked at in some 60 ms, which everybody else waits; health has 250."""
    body_timeout_s: Positive = 30
    """How long a body may take to arrive: 8 MiB over a slow line."""
    scan_bytes_max: Positive = 1024 * 1024
    """Text above this is refused unscanned (INPUT_TOO_LARGE): a quarter of a million tokens."""
    deadline_ms_max: Positive = 600_000
    """The longest that a request may take: a later deadline, a caller's or a contract's, counts as this. The vendors'
    own clients give up after ten minutes."""
    doorstep_turn_max: Positive = 16
    """Requests that begin in one turn of the loop: at some 0.3 ms each, what is inside waits 5 ms for them."""
    doorstep_waiting_max: Positive = 1024
    """Requests whose turn to begin has not come: what comes in half a second at 2 000 a second, and nobody waits for
    longer."""
    running_max: Positive = 256
    """Requests inside at once: with about a second each, more than two cores can serve."""
    waiting_max: Positive = 512
    """Requests waiting for a place: two seconds' worth."""
    tenant_max: Positive = 128
    """Requests of one tenant, running and waiting: half of `running_max`, so that no tenant fills the plane alone.
    Where there is one tenant, raise it to `running_max` and `waiting_max` together."""
    running_min: Positive = 32
    """The plane lets fewer than `running_max` run while it is itself too slow, but never fewer than this: as many keep
    its one processor and the disk busy."""
    working_max: Positive = 96
    """Requests that the plane itself works on at a time, those not counted that a provider has: at half a millisecond
    each, one that comes waits some 50 ms for the others, of the 250 that health has."""
    in_flight_min: Positive = 4
    """A capability that takes more than twice as long as usual gets fewer calls at once, but never fewer than this."""
    priority_age_ms: Positive = 5_000
    """How much earlier a request must have arrived to go before one that is a priority higher: P3 is overtaken by what
    arrives in the next 15 seconds, and by nothing after that."""
    health_faults_max: Positive = 5
    """A capability's faults in a row after which it rests."""
    health_rest_s: Positive = 10
    """How long it rests before one call is let through."""
    health_retry_after_max_s: Annotated[int, Meta(ge=0)] = 60
    """How long a provider's Retry-After keeps everybody's calls from it, at the most; 0 leaves it to the request that
    met it."""
    provider_attempts_max: Positive = 6
    """Calls of providers for one request, in all: a route with its retries, and three more."""
    upstream_connections_max: Positive = 512
    """Connections to providers, in all: twice `running_max`."""
    key_keep_s: Positive = 86_400
    """How long an idempotency key is remembered: a day, as the vendors do."""
    answer_keep_s: Positive = 86_400
    """How long the answer of a keyed request is kept for its replay."""
    answers_bytes_max: Positive = 1024 * 1024 * 1024
    """All stored answers together: where there is no room for another, the oldest go before their time."""
    batch_items_max: Positive = 10_000
    """Lines of one batch: an hour of work at three a second."""
    batch_bytes_max: Positive = 32 * 1024 * 1024
    """An uploaded file, or the lines of a batch: four are held in memory at once."""
    batches_open_max: Positive = 8
    """Batches of one tenant that have not ended."""
    batches_bytes_max: Positive = 2 * 1024 * 1024 * 1024
    """All files and items of batches together, beyond which no file and no batch is accepted. What accepted items are
    answered is stored beyond it."""
    batch_running_max: Positive = 8
    """Items of batches that run at once, of all of them together: a few, beside `running_max`."""
    batch_keep_s: Positive = 604_800
    """How long files, and batches that have ended, are kept: a week, so that a long weekend costs no result."""
    checkpoint_interval_ms: Positive = 250
    """How often new records are signed into a checkpoint; the promise is one second."""
    connections_max: Positive = 4096
    """Connections of callers in all: five times what may run and wait. A further one is closed unread."""
    connections_per_address_max: Positive = 512
    """Connections of one address, an IPv6 one's /64 together: more than a busy client library keeps, and an eighth of
    all. The networks of `trusted_proxies` are not bounded by it, nor is this machine where none are named."""
    keep_alive_s: Positive = 75
    """How long an idle connection of a caller is kept: longer than callers keep theirs, so that they close first."""
    heartbeat_s: Positive = 15
    """How long a stream may be silent before it says that it is alive: half of what the least patient proxies bear."""
    drain_s: Positive = 30
    """How long running requests may take to finish after SIGTERM."""
    hints: Annotated[
        str,
        Meta(
            pattern=r"^(off|inside|[^:/\s]+:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5})$",
            description="off, inside or HOST:PORT",
        ),
    ] = "off"
    """Who advises fleets which replica holds a prompt: `off`, `inside` (the service in this process), or HOST:PORT of
    one that speaks `inferencecache.v1alpha1`. A fleet is served with any of them, also when none answers."""
    hint_deadline_ms: Positive = 5
    """How long a request may wait for a hint: what a wrong replica costs is a prefill, some hundred times that."""
    tokenizers_dir: str | None = None
    """A folder with a folder for each tokenizer that fleets name, as models are published: `tokenizer.json`, and the
    chat template beside it."""
    hints_file: str | None = None
    """With `hints = "inside"`: the service's own settings file, for its policies and further feeds. With one the
    service also listens, where it says; without, it serves this plane alone."""
    hints_tls: bool = False
    """With HOST:PORT: speak TLS, checked against the system's authorities or those of `hints_ca_file`."""
    hints_ca_file: str | None = None
    """PEM certificates that sign the hint service's own."""
    hints_token_file: str | None = None
    """A file with the bearer token that the hint service knows this plane by; needs TLS, except on loopback."""
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$")] = "info"
    """Severity from which lines are written to standard error."""
    metrics: bool = True
    """Whether there is a `/metrics`. Without `metrics_token_file` it tells nobody anything, and nothing is counted."""
    metrics_token_file: str | None = None
    """A file with the bearer token of the scrapers of `/metrics`: 16 or more printable characters."""
    access_log: bool = True
    """One line a request to standard error: ids, codes and times, never content."""


def _elsewhere(name: str) -> bool:
    key = name.removeprefix(_PREFIX).lower()
    # The hint service's own settings begin with HINTS_, too: a machine may have both.
    return name.startswith(_INJECTED) or (key.startswith("hints_") and key not in Settings.__struct_fields__)


SOURCE = Source(prefix=_PREFIX, elsewhere=_elsewhere, page="docs/reference/settings.md")


def load_settings(file: Path | None, environment: Mapping[str, str], **flags: object) -> Settings:
    """The settings of a file, overridden by the environment, overridden by `flags` that are not None.

    Raises BadSettings.
    """
    settings, origin = load(Settings, SOURCE, file, environment, flags)
    for key in ("trusted_proxies", "private_networks"):
        for text in getattr(settings, key):
            try:
                ipaddress.ip_network(text)
            except ValueError:
                named = origin.get(key, key)
                raise BadSettings(f"{named} holds {text!r}, which is not a network such as 10.0.0.0/8") from None
    _check_together(settings)
    _check_hints(settings)
    return settings


def _check_together(settings: Settings) -> None:
    check_tls_pair(settings.tls_cert_file, settings.tls_key_file)
    if not is_loopback(settings.bind_host) and settings.tls_cert_file is None and not settings.trusted_proxies:
        raise BadSettings(
            f"bind_host {settings.bind_host} is reachable from outside: give tls_cert_file and tls_key_file, or name"
            " the proxies that end TLS in trusted_proxies"
        )


def _check_hints(settings: Settings) -> None:
    remote = settings.hints not in ("off", "inside")
    for key, given in (
        ("hints_tls", settings.hints_tls),
        ("hints_ca_file", settings.hints_ca_file is not None),
        ("hints_token_file", settings.hints_token_file is not None),
    ):
        if given and not remote:
            raise BadSettings(f"{key} says how to reach a hint service: name it in hints, as HOST:PORT")
    if settings.hints_file is not None and settings.hints != "inside":
        raise BadSettings('hints_file is read with hints = "inside"')
    if settings.hints_ca_file is not None and not settings.hints_tls:
        raise BadSettings("hints_ca_file is for hints_tls = true")
    host = settings.hints.rpartition(":")[0].strip("[]")
    if settings.hints_token_file is not None and not settings.hints_tls and not is_loopback(host):
        raise BadSettings(
            "hints_token_file would send the token in the clear: set hints_tls, or use a loopback address"
        )


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ


def read_secret(name: str) -> str | None:
    """The value of a capability's `env:NAME`, None when it is unset or empty."""
    return os.environ.get(name.removeprefix("env:")) or None
