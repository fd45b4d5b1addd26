"""The manifests as they are written: `inferencecache.io/v1alpha1`, field by field.

1. Field names, kinds and bounds are those of the contract's custom resources; `minimumMatchedShare` is ours.
2. Unknown fields of a spec are refused. `metadata` holds whatever Kubernetes puts there, `status` is not read.
3. A null field is an absent one, as in Kubernetes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

API_VERSION = "inferencecache.io/v1alpha1"
NAMESPACE_DEFAULT = "default"
"""What Kubernetes makes of a manifest without a namespace."""

HASH_SCHEME = "inferencecache.io/hash-scheme"
ADAPTER = "inferencecache.io/adapter"
TRANSPORT = "inferencecache.io/transport"
"""Annotations of a PDTopology."""

TRANSPORTS = ("Direct", "Mooncake", "NIXL")

Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Some = Annotated[str, Meta(min_length=1, max_length=253)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")]
Decimal = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?\Z")]
"""A number that is not an integer, as the contract's resources write it: in quotes, without a sign."""
SlotName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")]

_WORDS = {"ttl": "TTL", "id": "ID"}


def camel(name: str) -> str:
    """The wire's spelling of a field: `eviction_ttl` is `evictionTTL`."""
    first, *rest = name.split("_")
    return first + "".join(_WORDS.get(word, word.capitalize()) for word in rest)


class Spec(Struct, frozen=True, forbid_unknown_fields=True, rename=camel, kw_only=True):
    """What all specs and their parts have in common."""


class Metadata(Struct, frozen=True):
    """Whose it is and what it is called."""

    name: Name
    namespace: Name = NAMESPACE_DEFAULT
    annotations: dict[str, str] = {}


class Strategy(Spec, frozen=True):
    """Which ways of matching a tenant's lookups take."""

    enable_chain_matching: bool = True
    require_chain: bool = False
    enable_tenant_hot: bool = True


class CachePolicySpec(Spec, frozen=True):
    """How a tenant's entries age and its lookups are judged."""

    eviction: Literal["LRU", "LFU"] = "LRU"
    eviction_ttl: str | None = None
    minimum_prefix_tokens: Int32 = 0
    minimum_matched_tokens: Int32 = 64
    minimum_matched_share: Decimal | None = None
    routing_floor_score: Decimal = "0.1"
    lookup_timeout_ms: Int32 = 0
    strategy: Strategy = Strategy()
    affinity_routing: Literal["Enabled", "Disabled"] = "Enabled"


class Quota(Spec, frozen=True):
    """What a tenant may hold of the index."""

    max_index_entries: Int64 | None = None


class Crypto(Spec, frozen=True):
    """Reserved by the contract, and empty."""


class CacheTenantSpec(Spec, frozen=True):
    """A tenant as its traffic names it."""

    tenant_id: Some
    quota: Quota = Quota()
    isolation_mode: Literal["Fairness"] = "Fairness"
    crypto: Crypto = Crypto()


class SlotSpec(Spec, frozen=True):
    """A place in a template's body."""

    name: SlotName
    type: Literal["Stable", "Mutable"]
    required: bool = False
    description: str = ""


class PromptTemplateSpec(Spec, frozen=True):
    """A text with places in it."""

    body: Annotated[str, Meta(min_length=1)]
    slots: tuple[SlotSpec, ...] = ()


class PoolSpec(Spec, frozen=True):
    """Replicas that prefill, or that decode."""

    name: Some
    match_labels: dict[str, str] = {}
    replicas: Int32 = 0
    accelerator_type: str = ""


class AcceleratorSpec(Spec, frozen=True):
    """A class of hardware."""

    name: Some
    vendor: str = ""
    model: str = ""
    match_labels: dict[str, str] = {}


class PDTopologySpec(Spec, frozen=True):
    """The pools of a disaggregated model."""

    prefill_pools: tuple[PoolSpec, ...] = ()
    decode_pools: tuple[PoolSpec, ...] = ()
    accelerator_types: tuple[AcceleratorSpec, ...] = ()


class _Manifest(Struct, frozen=True, forbid_unknown_fields=True, rename=camel, kw_only=True):
    api_version: Literal["inferencecache.io/v1alpha1"]
    metadata: Metadata
    status: Any | UnsetType = UNSET


class CachePolicyManifest(_Manifest, frozen=True, tag_field="kind", tag="CachePolicy"):
    """`kind: CachePolicy`."""

    spec: CachePolicySpec


class CacheTenantManifest(_Manifest, frozen=True, tag_field="kind", tag="CacheTenant"):
    """`kind: CacheTenant`."""

    spec: CacheTenantSpec


class PromptTemplateManifest(_Manifest, frozen=True, tag_field="kind", tag="PromptTemplate"):
    """`kind: PromptTemplate`."""

    spec: PromptTemplateSpec


class PDTopologyManifest(_Manifest, frozen=True, tag_field="kind", tag="PDTopology"):
    """`kind: PDTopology`."""

    spec: PDTopologySpec = PDTopologySpec()


Manifest = CachePolicyManifest | CacheTenantManifest | PromptTemplateManifest | PDTopologyManifest


class ReplicaLabels(Struct, frozen=True, forbid_unknown_fields=True):
    """`replicas.yaml`: the labels of replicas by their ids, for those whose feeds register none."""

    replicas: dict[Some, dict[str, str]]
