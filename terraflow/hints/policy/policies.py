"""The policies in force, as values: parsed manifests, whichever way they came.

1. Replaced as a whole: a set of policies is never half old and half new.
2. A namespace is a tenant id. A tenant without a policy has `CachePolicy()`, which is the contract's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from terraflow.hints.policy.body import Part


class Eviction(StrEnum):
    """Whom the cap takes first among a tenant's entries."""

    LRU = "LRU"
    LFU = "LFU"


class CachePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's policy for its entries and its lookups."""

    eviction: Eviction = Eviction.LRU
    ttl_s: float | None = None
    """None: the service's own."""
    minimum_prefix_tokens: int = 0
    """0 is off."""
    minimum_matched_tokens: int = 64
    minimum_matched_share: float | None = None
    """The least share of the request's tokens that a match must hold to be one. None: the service's own, which is 0
    alone and 0.05 in fleets."""
    routing_floor_score: float = 0.1
    lookup_timeout_ms: int = 0
    """0 or less: none."""
    chain_matching: bool = True
    require_chain: bool = False
    tenant_hot: bool = True
    affinity: bool = True


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a template."""

    name: str
    stable: bool
    required: bool


class PromptTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template, with the digest of its manifest as its revision."""

    ref: str
    """`namespace/name`."""
    parts: tuple[Part, ...]
    """Its body, taken apart."""
    slots: tuple[Slot, ...]
    revision: str


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that prefill, or that decode: those whose labels contain `match_labels`."""

    name: str
    match_labels: Mapping[str, str]
    replicas: int = 0


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A disaggregated deployment of one model."""

    ref: str
    """`namespace/name`."""
    prefill_pools: tuple[Pool, ...]
    decode_pools: tuple[Pool, ...]
    hash_scheme: str = ""
    adapter: str = ""
    transport: str = "Direct"


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in force."""

    cache: Mapping[str, CachePolicy] = {}
    quotas: Mapping[str, int] = {}
    """The most distinct keys of a tenant; absent is no bound, 0 admits nothing."""
    templates: Mapping[str, PromptTemplate] = {}
    topologies: Mapping[str, Topology] = {}
    labels: Mapping[str, Mapping[str, str]] = {}
    """Labels of replicas by id, as `replicas.yaml` names them; feeds and fleets register theirs beside these."""

    def policy(self, tenant: str) -> CachePolicy:
        """The tenant's policy, or the default."""
        return self.cache.get(tenant, _DEFAULT)


_DEFAULT = CachePolicy()
