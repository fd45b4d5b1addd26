"""Lookups and reports for tests of the lookup, over the plain index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.look import Grounds, never
from terraflow.hints.deciding.lookup import Answer, decide_lookup
from terraflow.hints.deciding.question import Query
from terraflow.hints.policy.policies import CachePolicy, Policies
from terraflow.hints.words import Entry, Report, Scope
from tests.hints.model import Model

NOW = 1_000.0
TOKENS = list(range(16 * 8))
CHAIN = block_keys(TOKENS)
OTHER = block_keys(range(5_000, 5_128))
SCOPE = Scope("t", "m", "s")


class Ascii:
    """A token a character, for model m."""

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        """The text's bytes."""
        return list(text.encode()) if model == "m" else None


def chain(depth: int = 8, hashes: Sequence[bytes] = CHAIN, **more: Any) -> Query:
    """A lookup of that many blocks."""
    named: dict[str, Any] = {"tenant": "t", "model": "m", "scheme": "s", "block_hashes": list(hashes[:depth])}
    return Query(**{**named, "block_token_counts": [16] * depth, **more})


def exact(prefix_hash: bytes = b"P", tokens: int = 128, **more: Any) -> Query:
    """A lookup of one hash."""
    return Query(
        **{"tenant": "t", "model": "m", "scheme": "s", "prefix_hash": prefix_hash, "prefix_token_count": tokens, **more}
    )


def report(
    index: Model, replica: str, depth: int = 8, *, hashes: Sequence[bytes] = CHAIN, at: float = NOW, **more: Any
) -> None:
    """A replica says that it holds that many blocks."""
    counts = [16 * (number + 1) for number in range(depth)]
    entries = (Entry("", list(hashes[:depth]), counts, more.pop("tier", 1)),) if depth else ()
    named = {"replica": replica, "model": "m", "tenant": "t", "scheme": "s", "entries": entries, **more}
    index.ingest(Report(**named), at)


def two_replicas() -> Model:
    """r1 holds the chain and an exact hash, r2 holds something else."""
    index = Model()
    report(index, "r1")
    report(index, "r1", 0, entries=(Entry("", [b"P"], [128], 1),))
    report(index, "r2", hashes=OTHER)
    return index


def grounds(index: Model, policy: CachePolicy | None = None, **more: Any) -> Grounds:
    """What the lookups of tenant t are decided on: its policy, and the defaults of a service that stands alone."""
    policies = Policies(cache={} if policy is None else {"t": policy})
    named: dict[str, Any] = {"tokenizers": Ascii(), **more}
    return Grounds(index=cast(Any, index), policies=policies, **named)


def ask(index: Model, query: Query, policy: CachePolicy | None = None, **more: Any) -> Answer:
    """The answer on these grounds; `now` and `expired` may be set."""
    now, expired = more.pop("now", NOW), more.pop("expired", never)
    return decide_lookup(query, grounds(index, policy, **more), now, expired)


def told(answer: Answer) -> tuple[str, list[str]]:
    """Code and replicas."""
    return str(answer.reason), [row.replica for row in answer.scored]


MATCH, AFFINE = ("PREFIX_MATCH", ["r1"]), "AFFINITY_HINT"
EMPTY: tuple[str, list[str]] = ("NO_HINT", [])
