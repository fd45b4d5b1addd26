"""`POST /policy`: cache policies and tenants as a controller sends them, in one piece.

1. Versions 3 to 7 are the same form; a later one only has more fields. An absent field means the contract's default
   in every version, and so does a null.
2. Unknown fields are refused, and with them the whole body: nothing of it is put in force.
3. A negative number is 0, as the contract has it; a negative quota admits nothing. A TTL of 0 or less is the
   service's own.
4. What is said of the reserved probe tenant is passed over. A namespace or tenant named twice is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from terraflow.hints.policy.document import Path, dotted
from terraflow.hints.policy.kinds import Some, Strategy, camel
from terraflow.hints.policy.manifests import strategy_rules, told_place, without_nulls
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies
from terraflow.hints.policy.problems import PoliciesRefused, Problem, repeated
from terraflow.hints.words import PROBE_TENANT

BODY_BYTES_MAX = 1 << 20
VERSION_MIN = 3
VERSION_MAX = 7

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class PostedPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename=camel, kw_only=True):
    """One tenant's policy. `eviction_ttl` is nanoseconds."""

    namespace: Some
    eviction_ttl: _Int64 = 0
    minimum_prefix_tokens: _Int32 = 0
    minimum_matched_tokens: _Int32 = 64
    minimum_matched_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    routing_floor_score: float = 0.1
    lookup_timeout_ms: _Int32 = 0
    eviction: Literal["", "lru", "lfu"] = "lru"
    affinity_routing: bool = True
    strategy: Strategy = Strategy()


class PostedTenant(Struct, frozen=True, forbid_unknown_fields=True, rename=camel, kw_only=True):
    """One tenant's quota. The isolation mode is taken and changes nothing: there is one."""

    tenant_id: Some
    max_index_entries: _Int64 | None = None
    isolation_mode: str = ""


class PostedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole body."""

    version: Annotated[int, Meta(ge=VERSION_MIN, le=VERSION_MAX)]
    policies: tuple[PostedPolicy, ...] = ()
    tenants: tuple[PostedTenant, ...] = ()


class Posted(NamedTuple):
    """What a body sets: every cache policy and every quota there is."""

    cache: dict[str, CachePolicy]
    quotas: dict[str, int]


def parse_posted(raw: bytes) -> Posted:
    """The policies and quotas of a body. Raises PoliciesRefused."""
    if len(raw) > BODY_BYTES_MAX:
        raise _refused((), f"is larger than {BODY_BYTES_MAX} bytes")
    try:
        value = without_nulls(msgspec.json.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _refused((), "is not JSON") from None
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and not VERSION_MIN <= version <= VERSION_MAX:
        raise _refused(("version",), f"is not from {VERSION_MIN} to {VERSION_MAX}")
    try:
        body = msgspec.convert(value, PostedBody, strict=True)
    except msgspec.ValidationError as error:
        raise _refused(*told_place(str(error), value, PostedBody)) from None
    problems = list(_problems(body))
    if problems:
        raise PoliciesRefused(Problem("", 0, dotted(path), rule) for path, rule in problems)
    return Posted(
        cache={policy.namespace: _cache_policy(policy) for policy in body.policies if policy.namespace != PROBE_TENANT},
        quotas={
            tenant.tenant_id: max(tenant.max_index_entries, 0)
            for tenant in body.tenants
            if tenant.max_index_entries is not None and tenant.tenant_id != PROBE_TENANT
        },
    )


def as_posted(policies: Policies) -> tuple[tuple[PostedPolicy, ...], tuple[PostedTenant, ...]]:
    """Cache policies and quotas as a body has them: what is in force, in the words in which it is posted."""
    return (
        tuple(
            PostedPolicy(
                namespace=namespace,
                eviction_ttl=0 if policy.ttl_s is None else round(policy.ttl_s * 1e9),
                minimum_prefix_tokens=policy.minimum_prefix_tokens,
                minimum_matched_tokens=policy.minimum_matched_tokens,
                minimum_matched_share=policy.minimum_matched_share,
                routing_floor_score=policy.routing_floor_score,
                lookup_timeout_ms=policy.lookup_timeout_ms,
                eviction="lfu" if policy.eviction is Eviction.LFU else "lru",
                affinity_routing=policy.affinity,
                strategy=Strategy(
                    enable_chain_matching=policy.chain_matching,
                    require_chain=policy.require_chain,
                    enable_tenant_hot=policy.tenant_hot,
                ),
            )
            for namespace, policy in sorted(policies.cache.items())
        ),
        tuple(
            PostedTenant(tenant_id=tenant, max_index_entries=most) for tenant, most in sorted(policies.quotas.items())
        ),
    )


def _refused(path: Path, rule: str) -> PoliciesRefused:
    return PoliciesRefused([Problem("", 0, dotted(path) or "body", rule)])


def _problems(body: PostedBody) -> Iterator[tuple[Path, str]]:
    for at, _ in repeated(policy.namespace for policy in body.policies):
        yield ("policies", at, "namespace"), "is named a second time"
    for at, _ in repeated(tenant.tenant_id for tenant in body.tenants):
        yield ("tenants", at, "tenantID"), "is named a second time"
    for at, policy in enumerate(body.policies):
        yield from strategy_rules(("policies", at), policy.strategy)


def _cache_policy(posted: PostedPolicy) -> CachePolicy:
    return CachePolicy(
        eviction=Eviction.LFU if posted.eviction == "lfu" else Eviction.LRU,
        ttl_s=posted.eviction_ttl / 1e9 if posted.eviction_ttl > 0 else None,
        minimum_prefix_tokens=max(posted.minimum_prefix_tokens, 0),
        minimum_matched_tokens=max(posted.minimum_matched_tokens, 0),
        minimum_matched_share=posted.minimum_matched_share,
        routing_floor_score=max(posted.routing_floor_score, 0.0),
        lookup_timeout_ms=max(posted.lookup_timeout_ms, 0),
        chain_matching=posted.strategy.enable_chain_matching,
        require_chain=posted.strategy.require_chain,
        tenant_hot=posted.strategy.enable_tenant_hot,
        affinity=posted.affinity_routing,
    )
