"""One lookup under way: what it is decided on, what it was given, what its steps found, and how it was decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import BLOCK_TOKENS
from terraflow.hints.deciding.question import Input, Query, Tokenizers
from terraflow.hints.deciding.rank import NOBODY, Candidates, RankerConfig, Scored, Weighing
from terraflow.hints.policy.policies import CachePolicy, Policies
from terraflow.hints.words import Held, Scope

if TYPE_CHECKING:
    from terraflow.hints.deciding.assigned import Assigned
    from terraflow.hints.index.index import Index


class Grounds(msgspec.Struct, kw_only=True):
    """What the lookups of a process are decided on. `assigned`, and `share_min` above 0, are the two additions: off,
    answers are the reference's."""

    index: Index
    policies: Policies = Policies()
    ranker: RankerConfig = RankerConfig()
    tokenizers: Tokenizers | None = None
    assigned: Assigned | None = None
    share_min: float = 0.0
    """The least share of the input's tokens that makes a match, where the tenant's policy does not say."""
    block_tokens: int = BLOCK_TOKENS


class Look(msgspec.Struct, kw_only=True):
    """One lookup under way: what it was given, and what its steps found."""

    query: Query
    grounds: Grounds
    index: Index
    policy: CachePolicy
    assigned: Assigned | None
    now: float
    expired: Callable[[], bool]
    scope: Scope
    input: Input = Input()
    short: bool = False
    """Below `minimumPrefixTokens`: a positive result counts for nothing."""
    consulted: bool = False
    """The index was asked under the query's adapter."""
    held: list[Held] = []
    share: float = 0.0
    """The least share of the input's tokens that makes a match."""
    replicas: Sequence[str] = ()
    """The scope's, as the index knows them; sorted."""
    serving: Sequence[str] = ()
    """Those and the fleet's members, when there is an assignment memory; sorted."""
    candidates: Candidates = NOBODY
    floored: bool = False
    relieved: bool = False
    """Replicas that match are too busy for what they save."""

    def weighing(self) -> Weighing:
        """What its scores are weighed by."""
        query, index = self.query, self.index
        stats_of = partial(index.stats, query.tenant, query.model)
        return Weighing(index.ttl_s(query.tenant), query.ttft_ms, stats_of, self.grounds.ranker, self.now)


class Decision(msgspec.Struct, kw_only=True):
    """How a lookup was decided, for the answer and for who asks why."""

    reason: Lookup
    step: str
    why: str
    ranked: list[Scored] = []


def no_hint(step: str, why: str) -> Decision:
    """That there is none."""
    return Decision(reason=Lookup.NO_HINT, step=step, why=why)


def never() -> bool:
    """For `expired`, where there is no deadline."""
    return False
