"""Manifests to the policies that they set.

1. Everything that is wrong is told at once, with file, line and field; nothing of a folder with a problem is put in
   force.
2. A namespace is a tenant id, and has one CachePolicy. No two manifests of a kind share namespace and name, no two
   CacheTenants a tenant id.
3. A template's revision is the SHA-256 of the canonical JSON of its apiVersion, kind, namespace, name and spec, with
   defaults filled in: a comment, a label or another order of keys does not change it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from terraflow.core.canonical import canonical
from terraflow.core.forms import instead
from terraflow.hints.policy.body import MalformedBody, parse_body
from terraflow.hints.policy.document import Document, Path, dotted, read_documents
from terraflow.hints.policy.duration import parse_duration
from terraflow.hints.policy.kinds import (
    ADAPTER,
    API_VERSION,
    HASH_SCHEME,
    TRANSPORT,
    TRANSPORTS,
    CachePolicyManifest,
    CachePolicySpec,
    CacheTenantManifest,
    Manifest,
    PDTopologyManifest,
    PoolSpec,
    PromptTemplateManifest,
    ReplicaLabels,
    Strategy,
)
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies, Pool, PromptTemplate, Slot, Topology
from terraflow.hints.policy.problems import PoliciesRefused, Problem, repeated
from terraflow.hints.words import PROBE_TENANT

REPLICAS_FILE = "replicas.yaml"

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `([^`]*)`")


def parse_manifests(files: Mapping[str, bytes]) -> Policies:
    """The policies of files by name; `replicas.yaml` holds labels. Raises PoliciesRefused with all that is wrong."""
    gathered = _Gathered()
    for file in sorted(files):
        try:
            documents = read_documents(files[file], file)
        except PoliciesRefused as refused:
            gathered.problems += refused.problems
            continue
        for document in documents:
            gathered.take(file, document)
    if gathered.problems:
        raise PoliciesRefused(gathered.problems)
    return Policies(
        cache=gathered.cache,
        quotas=gathered.quotas,
        templates=gathered.templates,
        topologies=gathered.topologies,
        labels=gathered.labels,
    )


class _Gathered:
    """What the documents have set so far, and what is wrong with them."""

    def __init__(self) -> None:
        self.cache: dict[str, CachePolicy] = {}
        self.quotas: dict[str, int] = {}
        self.templates: dict[str, PromptTemplate] = {}
        self.topologies: dict[str, Topology] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.problems: list[Problem] = []
        self._taken: dict[tuple[str, str], str] = {}

    def take(self, file: str, document: Document) -> None:
        """Add a document, or its problems."""
        labels_only = file.rpartition("/")[2] == REPLICAS_FILE
        kind: Any = ReplicaLabels if labels_only else Manifest
        try:
            found = msgspec.convert(without_nulls(document.value), kind, strict=True)
        except msgspec.ValidationError as error:
            untold = not labels_only and isinstance(document.value, dict) and "kind" not in document.value
            path, rule = (
                (("kind",), f"is required: {_KINDS}") if untold else told_place(str(error), document.value, kind)
            )
            self._tell(file, document, path, rule)
            return
        before = len(self.problems)
        if isinstance(found, ReplicaLabels):
            for replica, labels in found.replicas.items():
                self._once(file, document, ("replicas", replica), "replica", replica)
                self.labels[replica] = labels
            return
        for path, rule in _broken_rules(found):
            self._tell(file, document, path, rule)
        name = f"{found.metadata.namespace}/{found.metadata.name}"
        self._once(file, document, ("metadata", "name"), type(found).__struct_config__.tag or "", name)
        if isinstance(found, CachePolicyManifest):
            self._once(file, document, ("metadata", "namespace"), "CachePolicy of namespace", found.metadata.namespace)
        elif isinstance(found, CacheTenantManifest):
            self._once(file, document, ("spec", "tenantID"), "CacheTenant of tenant", found.spec.tenant_id)
        if len(self.problems) == before:
            self._set(found, name)

    def _set(self, found: Manifest, name: str) -> None:
        match found:
            case CachePolicyManifest(metadata=metadata, spec=spec):
                self.cache[metadata.namespace] = _cache_policy(spec)
            case CacheTenantManifest(spec=spec):
                if spec.quota.max_index_entries is not None:
                    self.quotas[spec.tenant_id] = spec.quota.max_index_entries
            case PromptTemplateManifest():
                self.templates[name] = _template(found, name)
            case PDTopologyManifest():
                self.topologies[name] = _topology(found, name)

    def _once(self, file: str, document: Document, path: Path, what: object, key: str) -> None:
        here = f"{file}:{document.line(path)}"
        there = self._taken.setdefault((str(what), key), here)
        if there is not here:
            self._tell(file, document, path, f"is the second {what} {key}: the first is at {there}")

    def _tell(self, file: str, document: Document, path: Path, rule: str) -> None:
        self.problems.append(Problem(file, document.line(path), dotted(path), rule))


def without_nulls(value: Any) -> Any:
    """The value without fields that are null: Kubernetes and Go take them for absent."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def told_place(said: str, value: Any, kind: Any) -> tuple[Path, str]:
    """The place and the rule of what msgspec says of `value`, which should have been a `kind`."""
    if not isinstance(value, dict):
        return (), "is no mapping"
    rule, _, where = said.partition(" - at ")
    path = _path(where, value)
    if (unknown := _UNKNOWN_FIELD.search(rule)) is not None:
        path = (*path, unknown[1])
        remedy = instead(kind, path, rule)
        return path, f"is no field of this manifest{f': {remedy}' if remedy.startswith('did') else ''}"
    if (missing := _MISSING_FIELD.search(rule)) is not None:
        return (*path, missing[1]), "is required"
    if path == ("kind",):
        return path, f"is no kind that is read here: {_KINDS}"
    if path == ("apiVersion",):
        return path, f"is not {API_VERSION}"
    if "matching regex" in rule:
        return path, _DECIMAL if path[-1] in _DECIMALS else _NAME
    if remedy := instead(kind, path, rule):
        given = rule.partition("Invalid enum value ")[2]
        return path, f"is {given}, not {remedy}" if given else f"is not {remedy}"
    return path, rule[:1].lower() + rule[1:]


_KINDS = "CachePolicy, CacheTenant, PromptTemplate or PDTopology"
_DECIMALS = ("routingFloorScore", "minimumMatchedShare")
_DECIMAL = 'is no plain decimal in quotes, such as "0.1"'
_NAME = "is not made of letters, digits and . _ - between them"


def _path(where: str, value: Any) -> Path:
    """A path as msgspec writes it, with the key for which it has only `[...]`: the first whose value is no text."""
    path: list[str | int] = []
    for name, index in _STEP.findall(where.strip("`").replace("key in ", "")):
        step = int(index) if index.isdigit() else name
        if not index or index.isdigit():
            value = value[step] if isinstance(value, list) or step in value else None
        elif isinstance(value, dict):
            step = next((key for key, inner in value.items() if not _texts(inner)), "")
            value = value.get(step)
        if step != "":
            path.append(step)
    return tuple(path)


def _texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and all(isinstance(inner, str) for inner in value.values())
    )


def _broken_rules(found: Manifest) -> Iterator[tuple[Path, str]]:
    """What a manifest's form allows and the contract does not."""
    match found:
        case CachePolicyManifest(spec=spec):
            yield from _policy_rules(spec)
        case CacheTenantManifest(spec=spec):
            if spec.tenant_id == PROBE_TENANT:
                yield ("spec", "tenantID"), "is reserved for probes"
        case PromptTemplateManifest(spec=spec):
            yield from _twice(("spec", "slots"), [slot.name for slot in spec.slots])
            try:
                used = {part.slot for part in parse_body(spec.body) if part.slot}
            except MalformedBody as malformed:
                yield ("spec", "body"), str(malformed)
                return
            for name in sorted(used - {slot.name for slot in spec.slots}):
                yield ("spec", "body"), f"uses the slot {name}, which spec.slots does not declare"
        case PDTopologyManifest(metadata=metadata, spec=spec):
            if metadata.annotations.get(TRANSPORT, TRANSPORTS[0]) not in TRANSPORTS:
                yield ("metadata", "annotations", TRANSPORT), f"is not one of {', '.join(TRANSPORTS)}"
            accelerators = [accelerator.name for accelerator in spec.accelerator_types]
            yield from _twice(("spec", "acceleratorTypes"), accelerators)
            for field, pools in (("prefillPools", spec.prefill_pools), ("decodePools", spec.decode_pools)):
                yield from _twice(("spec", field), [pool.name for pool in pools])
                for at, pool in enumerate(pools):
                    if pool.accelerator_type and pool.accelerator_type not in accelerators:
                        yield ("spec", field, at, "acceleratorType"), "is not among spec.acceleratorTypes"


def _policy_rules(spec: CachePolicySpec) -> Iterator[tuple[Path, str]]:
    if spec.eviction_ttl is not None:
        try:
            if parse_duration(spec.eviction_ttl) == 0:
                yield ("spec", "evictionTTL"), "must be more than zero; leave it out for the service's own"
        except ValueError as error:
            yield ("spec", "evictionTTL"), str(error)
    if spec.minimum_matched_share is not None and float(spec.minimum_matched_share) > 1:
        yield ("spec", "minimumMatchedShare"), "is a share, from 0 to 1"
    yield from strategy_rules(("spec",), spec.strategy)


def strategy_rules(path: Path, strategy: Strategy) -> Iterator[tuple[Path, str]]:
    """What a strategy's form allows and the contract does not; `path` is where it stands."""
    if strategy.require_chain and not strategy.enable_chain_matching:
        yield (*path, "strategy", "requireChain"), "needs enableChainMatching, which is off"


def _twice(path: Path, names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for at, name in repeated(names):
        yield (*path, at, "name"), f"is the second {name} in this list"


def _cache_policy(spec: CachePolicySpec) -> CachePolicy:
    share = spec.minimum_matched_share
    return CachePolicy(
        eviction=Eviction(spec.eviction),
        ttl_s=None if spec.eviction_ttl is None else parse_duration(spec.eviction_ttl) / 1e9,
        minimum_prefix_tokens=spec.minimum_prefix_tokens,
        minimum_matched_tokens=spec.minimum_matched_tokens,
        minimum_matched_share=None if share is None else float(share),
        routing_floor_score=float(spec.routing_floor_score),
        lookup_timeout_ms=spec.lookup_timeout_ms,
        chain_matching=spec.strategy.enable_chain_matching,
        require_chain=spec.strategy.require_chain,
        tenant_hot=spec.strategy.enable_tenant_hot,
        affinity=spec.affinity_routing == "Enabled",
    )


def _template(found: PromptTemplateManifest, ref: str) -> PromptTemplate:
    metadata = {"namespace": found.metadata.namespace, "name": found.metadata.name}
    form = {"apiVersion": API_VERSION, "kind": "PromptTemplate", "metadata": metadata, "spec": found.spec}
    slots = (Slot(name=s.name, stable=s.type == "Stable", required=s.required) for s in found.spec.slots)
    return PromptTemplate(
        ref=ref,
        parts=tuple(parse_body(found.spec.body)),
        slots=tuple(slots),
        revision=f"sha256:{hashlib.sha256(canonical(form)).hexdigest()}",
    )


def _topology(found: PDTopologyManifest, ref: str) -> Topology:
    said = found.metadata.annotations
    return Topology(
        ref=ref,
        prefill_pools=_pools(found.spec.prefill_pools),
        decode_pools=_pools(found.spec.decode_pools),
        hash_scheme=said.get(HASH_SCHEME, ""),
        adapter=said.get(ADAPTER, ""),
        transport=said.get(TRANSPORT, TRANSPORTS[0]),
    )


def _pools(pools: Iterable[PoolSpec]) -> tuple[Pool, ...]:
    return tuple(Pool(name=p.name, match_labels=p.match_labels, replicas=p.replicas) for p in pools)
