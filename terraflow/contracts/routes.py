"""The exclusion table, and its evaluation: for each capability, permitted or the first exclusion that holds.

1. `EXCLUSIONS` is asked top to bottom, one row a line. A row says when a capability is *permitted*; everything
   else, an absent or unknown value among it, excludes.
2. Any error denies: an exception, a result that is not a boolean, or a value of another type, in any row and for
   any capability, raises PolicyEvaluationError for the whole request.
3. Rows that read only the bundle are asked once, when the bundle is compiled (`survey`); a request asks what is
   left. `exclude` is the table read plainly, and a test holds the two against each other.
4. Private capacity is exhausted when policy permits some private capability, health aside, and each of those is
   unhealthy, has no free slot, or is under pressure. One that is disabled or otherwise excluded does not count: with
   none left that policy permits, nothing is exhausted and a burst contract stays inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from terraflow.contracts.capability import Boundary, Lifecycle, PrefixCache
from terraflow.contracts.compiled import ANY, CompiledCapability, CompiledContract
from terraflow.contracts.contract import Egress
from terraflow.contracts.exact import Exact, PolicyEvaluationError
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, SensitiveType


class RequestFacts(Exact, frozen=True, kw_only=True):
    """What the table reads of a request.

    `input_bytes` is its size in UTF-8 as it would be sent on; `output_tokens_max` the longest answer it may get,
    the caller's figure or the contract's default.
    """

    data_class: DataClass
    sensitive_types: frozenset[SensitiveType]
    tools_offered: bool
    input_bytes: int
    output_tokens_max: int
    audio: bool


class Condition(Exact, frozen=True, kw_only=True):
    """What the table reads of a capability's state at this moment.

    `enabled` is the operator's switch, apart from the bundle's; `has_free_slot` is true without an in-flight
    limit; `under_pressure` is true of a fleet none of whose replicas has room, by the bundle's bound;
    `inside_boundary` is only asked of private capabilities, and is true of one without an address; `secret_present` is
    only asked where a secret is named. `recent_faults` only orders (see `plan`).
    """

    enabled: bool
    secret_present: bool
    healthy: bool
    inside_boundary: bool
    has_free_slot: bool
    under_pressure: bool
    recent_faults: int = 0

    @property
    def has_room(self) -> bool:
        """Whether a call would be begun at once, and not on an engine that already has too much to do."""
        return self.has_free_slot and not self.under_pressure


class Reads(IntEnum):
    """What a row reads beside the capability."""

    BUNDLE = 0
    REQUEST = 1
    CONDITION = 2
    CAPACITY = 3


class Exclusion(NamedTuple):
    """A row: the code of those it excludes, a detail, and who is permitted."""

    code: Governed
    reads: Reads
    permits: Callable[..., object]
    detail: str = ""


_OfBundle = Callable[[CompiledContract, CompiledCapability], bool]
_OfRequest = Callable[[CompiledCapability, RequestFacts], bool]
_OfCondition = Callable[[CompiledCapability, Condition], bool]
_OfCapacity = Callable[[CompiledContract, CompiledCapability, bool], bool]


def _bundle(code: Governed, permits: _OfBundle, detail: str = "") -> Exclusion:
    return Exclusion(code, Reads.BUNDLE, permits, detail)


def _facts(code: Governed, permits: _OfRequest, detail: str = "") -> Exclusion:
    return Exclusion(code, Reads.REQUEST, permits, detail)


def _state(code: Governed, permits: _OfCondition, detail: str = "") -> Exclusion:
    return Exclusion(code, Reads.CONDITION, permits, detail)


def _capacity(code: Governed, permits: _OfCapacity) -> Exclusion:
    return Exclusion(code, Reads.CAPACITY, permits)


BYTES_PER_TOKEN = 3
"""For capabilities that nobody bills: English has about four bytes a token, and scripts of three bytes a character
seldom more than one token for each. A paid capability's bytes count as a token each."""


def answer_tokens_max(capability: CompiledCapability, facts: RequestFacts) -> int:
    """The longest answer that is asked of this capability, in tokens."""
    return min(facts.output_tokens_max, capability.output_tokens_max)


def _fits_window(capability: CompiledCapability, facts: RequestFacts) -> bool:
    tokens = -(-facts.input_bytes // BYTES_PER_TOKEN) if capability.paid is False else facts.input_bytes
    return tokens + min(facts.output_tokens_max, capability.output_tokens_max) <= capability.context_window_tokens


def _keeps_apart(capability: CompiledCapability, facts: RequestFacts) -> bool:
    return capability.prefix_cache in _UNSHARED or facts.data_class < _CONFIDENTIAL


def _may_leave(contract: CompiledContract, capability: CompiledCapability) -> bool:
    leaves = capability.boundary is _EXTERNAL and contract.egress in (_BURST, _ALLOWED)
    return capability.boundary is _PRIVATE or leaves


def _may_leave_now(contract: CompiledContract, capability: CompiledCapability, exhausted: bool) -> bool:
    return capability.boundary is _PRIVATE or contract.egress is _ALLOWED or exhausted


def _has_secret(capability: CompiledCapability, condition: Condition) -> bool:
    if capability.secret_named is False:
        return capability.paid is False
    return capability.secret_named is True and condition.secret_present


def _is_among(value: str, allowed: frozenset[str]) -> bool:
    return value in allowed or ANY in allowed


# Looking a member up in its enumeration costs as much as a row.
_PRIVATE, _EXTERNAL = Boundary.PRIVATE, Boundary.EXTERNAL
_ALLOWED, _BURST = Egress.ALLOWED, Egress.BURST
_CONFIDENTIAL = DataClass.CONFIDENTIAL
_REQUEST, _CONDITION = Reads.REQUEST, Reads.CONDITION
_UNHEALTHY = Governed.PROVIDER_UNHEALTHY
_UNSHARED = (PrefixCache.NONE, PrefixCache.DEDICATED)

# c is the contract, m the capability, r the request, s the capability's condition.
# fmt: off
EXCLUSIONS: tuple[Exclusion, ...] = (
    _bundle(Governed.CAPABILITY_NOT_IN_CONTRACT, lambda c, m: m.id in c.capabilities),
    _bundle(Governed.MODEL_FAMILY_NOT_ALLOWED, lambda c, m: _is_among(m.family, c.families)),
    _bundle(Governed.LIFECYCLE_NOT_APPROVED, lambda c, m: m.lifecycle is Lifecycle.APPROVED),
    _bundle(Governed.CONSEQUENCE_TIER_NOT_APPROVED, lambda c, m: c.consequence_tier in m.consequence_tiers),
    _state(Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY, lambda m, s: m.boundary is _EXTERNAL or s.inside_boundary),
    _bundle(Governed.EXTERNAL_EGRESS_NOT_ALLOWED, _may_leave),
    _bundle(Governed.JURISDICTION_NOT_ALLOWED, lambda c, m: _is_among(m.jurisdiction, c.jurisdictions)),
    _bundle(Governed.DATA_TERMS_TRAINING, lambda c, m: m.trains is False or c.training_allowed),
    _bundle(Governed.DATA_TERMS_RETENTION, lambda c, m: m.retention_days <= c.retention_days_max),
    _facts(Governed.DATA_CLASS_EXCEEDS_CAPABILITY, lambda m, r: r.data_class <= m.data_class_max),
    _facts(Governed.SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY, lambda m, r: m.sensitive_types >= r.sensitive_types),
    _facts(Governed.PREFIX_CACHE_SHARED, _keeps_apart),
    _facts(Governed.TOOLS_UNSUPPORTED, lambda m, r: m.tools or r.tools_offered is False),
    _facts(Governed.CONTEXT_WINDOW_EXCEEDED, _fits_window),
    _bundle(Governed.PROVIDER_DISABLED, lambda c, m: m.enabled),
    _bundle(Governed.PROVIDER_DISABLED, lambda c, m: m.paid is False or m.priced, "PRICE_UNKNOWN"),
    _facts(Governed.PROVIDER_DISABLED, lambda m, r: m.audio_priced or r.audio is False, "AUDIO_PRICE_UNKNOWN"),
    _state(Governed.PROVIDER_DISABLED, lambda m, s: s.enabled, "SWITCHED_OFF"),
    _state(Governed.PROVIDER_DISABLED, _has_secret, "SECRET_MISSING"),
    _state(Governed.PROVIDER_UNHEALTHY, lambda m, s: s.healthy),
    _capacity(Governed.BURST_ONLY_ON_CAPACITY, _may_leave_now),
)
# fmt: on


class Verdict(msgspec.Struct, frozen=True):
    """What the table says of one capability: permitted when `exclusion` is None.

    `awaits_health`: it is unhealthy, and no other row excludes it.
    """

    capability: str
    exclusion: Governed | None = None
    detail: str = ""
    awaits_health: bool = False

    @property
    def permitted(self) -> bool:
        """Whether it may receive the request."""
        return self.exclusion is None


class Check(NamedTuple):
    """A row that a request must still ask, and what is said if it excludes."""

    reads: Reads
    permits: Callable[..., object]
    excluded: Verdict


class Route(msgspec.Struct, frozen=True):
    """A capability under a contract, with the rows of the bundle already answered.

    `last` is the verdict when every check permits: permitted, or what the bundle excludes after them.
    """

    capability: CompiledCapability
    checks: tuple[Check, ...]
    last: Verdict


class Survey(msgspec.Struct, frozen=True):
    """A contract and every capability of the bundle under it, in the bundle's order.

    `open` are the capabilities about which a request still has something to ask; of no other does it need to know
    the condition.
    """

    contract: CompiledContract
    routes: tuple[Route, ...]
    open: tuple[str, ...]


def survey(
    contract: CompiledContract,
    capabilities: tuple[CompiledCapability, ...],
    table: tuple[Exclusion, ...] = EXCLUSIONS,
) -> Survey:
    """Ask the bundle's rows once. Raises PolicyEvaluationError like every evaluation."""
    routes = tuple(_survey(contract, capability, table) for capability in capabilities)
    return Survey(contract, routes, tuple(route.capability.id for route in routes if route.checks))


def _survey(contract: CompiledContract, capability: CompiledCapability, table: tuple[Exclusion, ...]) -> Route:
    checks: list[Check] = []
    for row in table:
        if row.reads is not Reads.BUNDLE:
            checks.append(_check(capability.id, row))
        elif not _answer(row.permits, contract, capability):
            return Route(capability, tuple(checks), _check(capability.id, row).excluded)
    return Route(capability, tuple(checks), Verdict(capability.id))


@lru_cache(maxsize=32_768)
def _check(capability: str, row: Exclusion) -> Check:
    """Shared by all workloads: a bundle of a thousand workloads holds each check once."""
    return Check(row.reads, row.permits, Verdict(capability, row.code, row.detail))


def exclude(
    contract: CompiledContract,
    capability: CompiledCapability,
    facts: RequestFacts,
    condition: Condition,
    private_capacity_exhausted: bool,
    table: tuple[Exclusion, ...] = EXCLUSIONS,
) -> Exclusion | None:
    """The first row that excludes the capability; None permits it. Raises PolicyEvaluationError."""
    for row in table:
        if row.reads is Reads.BUNDLE:
            permitted = _answer(row.permits, contract, capability)
        elif row.reads is Reads.REQUEST:
            permitted = _answer(row.permits, capability, facts)
        elif row.reads is Reads.CONDITION:
            permitted = _answer(row.permits, capability, condition)
        else:
            permitted = _answer(row.permits, contract, capability, private_capacity_exhausted)
        if not permitted:
            return row
    return None


def _answer(permits: Callable[..., object], *read: object) -> bool:
    try:
        answer = permits(*read)
    except Exception as error:
        raise PolicyEvaluationError(f"a row failed with {type(error).__name__}") from error
    if answer is True or answer is False:
        return answer
    raise PolicyEvaluationError("a row answered neither yes nor no")


def evaluate(under: Survey, facts: RequestFacts, conditions: Mapping[str, Condition]) -> tuple[Verdict, ...]:
    """A verdict for every capability of the bundle, in its order. Raises PolicyEvaluationError, and nothing else.

    `conditions` holds every capability of `under.open`.
    """
    try:
        verdicts = _evaluate(under, facts, conditions)
    except PolicyEvaluationError:
        raise
    except Exception as error:
        raise PolicyEvaluationError(f"the evaluation failed with {type(error).__name__}") from error
    return verdicts


def _evaluate(under: Survey, facts: RequestFacts, conditions: Mapping[str, Condition]) -> tuple[Verdict, ...]:
    if type(facts) is not RequestFacts:
        raise PolicyEvaluationError("no facts of the request")
    contract = under.contract
    if contract.egress is not _BURST:
        return tuple([_judge(contract, route, facts, conditions, False) for route in under.routes])
    inside = {
        route.capability.id: _judge(contract, route, facts, conditions, False)
        for route in under.routes
        if route.capability.boundary is _PRIVATE
    }
    exhausted = private_capacity_exhausted(tuple(inside.values()), conditions)
    return tuple(
        [
            inside.get(route.capability.id) or _judge(contract, route, facts, conditions, exhausted)
            for route in under.routes
        ]
    )


def private_capacity_exhausted(inside: tuple[Verdict, ...], conditions: Mapping[str, Condition]) -> bool:
    """Rule 4, over the verdicts of the private capabilities."""
    able = [verdict for verdict in inside if verdict.permitted or verdict.awaits_health]
    free = [verdict for verdict in able if verdict.permitted and conditions[verdict.capability].has_room]
    return bool(able) and not free


def _judge(
    contract: CompiledContract,
    route: Route,
    facts: RequestFacts,
    conditions: Mapping[str, Condition],
    exhausted: bool,
) -> Verdict:
    if not route.checks:
        return route.last
    capability = route.capability
    condition = conditions[capability.id]
    if type(condition) is not Condition:
        raise PolicyEvaluationError("a capability's condition is unknown")
    unhealthy: Verdict | None = None
    for reads, permits, excluded in route.checks:
        if reads is _REQUEST:
            answer = permits(capability, facts)
        elif reads is _CONDITION:
            answer = permits(capability, condition)
        else:
            answer = permits(contract, capability, exhausted)
        if answer is True:
            continue
        if answer is not False:
            raise PolicyEvaluationError("a row answered neither yes nor no")
        if excluded.exclusion is not _UNHEALTHY:
            return unhealthy or excluded
        unhealthy = excluded
    if unhealthy is None:
        return route.last
    return Verdict(capability.id, unhealthy.exclusion, unhealthy.detail, route.last.permitted)
