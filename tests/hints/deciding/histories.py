"""Generated histories: reports, events, policies, time and lookups, for the real thing and the plain model at once.

`compare(seed)` runs one and tells the first answer that differs, or None. The universe is small on purpose, so that
tenants, models, schemes, adapters, hashes and replicas meet. A history has stamps or sweeps, as the plain model asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from terraflow.hints.deciding.explain import explain
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.deciding.lookup import Answer, decide_lookup
from terraflow.hints.deciding.question import Query
from terraflow.hints.deciding.rank import RankerConfig
from terraflow.hints.index.index import Index
from terraflow.hints.index.said import TenantRule
from terraflow.hints.policy.policies import CachePolicy, Eviction, Policies
from terraflow.hints.words import Entry, Report, Scope, Stats
from tests.hints.deciding.lookup_model import PROBE, Told, World, chained, f32, plain_lookup
from tests.hints.model import Model

TENANTS, MODELS, SCHEMES, ADAPTERS = ("a", "b"), ("m", "n"), ("s", "z"), ("", "x")
REPLICAS = ("r1", "r2", "S", "r10")
BLOCK = 2
TTL_S = 100.0
DOCUMENTS = tuple(
    [*b"system"[:shared], *range(40 * at, 40 * at + 14 - shared)] for at, shared in enumerate((6, 6, 4, 0))
)
"""Token ids; the first two begin alike for three blocks, the third for two."""
CHAINS = tuple(tuple(chained(document, BLOCK)) for document in DOCUMENTS)
STEPS = 60
FLOATS = (0.0, 0.05, f32(0.1), 0.3, 0.5, 1.0)


class Bytes:
    """One token a byte, for model m alone."""

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        """The text's bytes."""
        return list(text.encode()) if model == "m" else None


class Slow:
    """An index that a deadline passes over: from its first answer on it is too late."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.asked = False

    def __getattr__(self, name: str) -> Any:
        self.asked = True
        return getattr(self._index, name)


def tokenize(model: str, text: str) -> list[int] | None:
    """What the model is told that `Bytes` does."""
    return list(text.encode()) if model == "m" else None


class History:
    """One history under way."""

    def __init__(self, seed: int, decide: Callable[..., Answer]) -> None:
        self.random = Random(seed)
        self.decide = decide
        self.stamped = self.random.random() < 0.5
        entries_max = self.random.choice((9, 30, 1000))
        self.real, self.model = Index(entries_max=entries_max, ttl_s=TTL_S), Model(entries_max=entries_max, ttl_s=TTL_S)
        self.policies = Policies()
        self.ranker = RankerConfig() if self.random.random() < 0.6 else self._ranker()
        self.share_min = self.random.choice((0.0, 0.0, 0.0, 0.05, 0.5))
        self.now = self.random.choice((0.0, 12_345.678))
        self.seen: Counter[str] = Counter()

    def _ranker(self) -> RankerConfig:
        pick = self.random.choice
        return RankerConfig(
            pressure_weight=pick((0.0, 0.3, 1.0, 4.0)),
            slo_tight_ttft_ms=pick((0, 100, 200)),
            slo_tight_bias=pick((0.0, 0.7, 8.0)),
            tenant_hot_max_age_s=pick((0.0, 40.0, 300.0)),
            tenant_hot_min_hit_rate=pick((0.0, 0.1, 0.5)),
            tier_weights=pick(({}, {2: 0.5, 4: 0.1}, {1: 0.7})),
        )

    def run(self) -> str | None:
        """The first difference."""
        steps = (self._report, self._report, self._report, self._lookup, self._lookup, self._lookup, self._event)
        if self._maybe(0.9):
            self._govern()
        for number in range(STEPS):
            self._pass_time()
            step = self._govern if self.random.random() < 0.06 else self.random.choice(steps)
            difference = step()
            if difference is not None:
                return f"step {number}: {difference}"
        return None

    def _pass_time(self) -> None:
        self.now += self.random.choice((0.0, 0.0, 0.0, 0.001, 1.0, 1.0, 7.3, 24.9 if self._maybe(0.4) else 2.0))

    def _maybe(self, share: float) -> bool:
        return self.random.random() < share

    def _report(self) -> str | None:
        pick = self.random.choice
        entries = [self._entry() for _ in range(self.random.randint(1, 4) if self._maybe(0.8) else 0)]
        stats = Stats(hit_rate=pick(FLOATS), pressure=pick((*FLOATS, 2.0, -1.0))) if self._maybe(0.4) else None
        report = Report(
            replica=pick(REPLICAS),
            model=pick(MODELS) if self._maybe(0.15) else "m",
            tenant=pick(TENANTS) if self._maybe(0.25) else "a",
            scheme=pick((*SCHEMES, "")) if self._maybe(0.1) else "s",
            entries=tuple(entries),
            stats=stats,
            skew_s=pick((0.0, 0.0, 3.0, -3.0, 900.0, -900.0)) if self.stamped else 0.0,
        )
        one, other = self.real.ingest(report, self.now), self.model.ingest(report, self.now)
        return None if one == other else f"ingest: {one} for {other}"

    def _entry(self) -> Entry:
        pick = self.random.choice
        adapter, tier = pick(ADAPTERS) if self._maybe(0.2) else "", pick((0, 1, 1, 2, 3, 4, 9, -1))
        chain = list(pick(CHAINS))
        if self._maybe(0.15):
            return Entry(adapter, [pick(chain)], [pick((-5, 0, 1, 3, 64, 100))], tier)
        upto = self.random.randint(1, len(chain))
        return Entry(adapter, chain[:upto], [BLOCK * (at + 1) for at in range(upto)], tier)

    def _event(self) -> str | None:
        pick = self.random.choice
        replica, tenant, model = pick(REPLICAS), pick(("a", "a", "b")), pick(("m", "m", "n"))
        name = pick(("evict", "evict", "evict_many", "refresh", "degrade", "degrade", "heal", "sweep", "clear"))
        chain = list(pick(CHAINS))
        hashes = self.random.sample(chain, self.random.randint(1, 3))
        adapter = pick((None, "", "x"))
        results = []
        for index in (self.real, self.model):
            match name:
                case "evict":
                    results.append(index.evict(tenant, model, replica, hashes[0], adapter, self.now))
                case "evict_many":
                    results.append(index.evict_many(Scope(tenant, model, "s"), replica, adapter, hashes, self.now))
                case "clear":
                    results.append(index.clear(tenant, model, replica, self.now))
                case "refresh":
                    index.refresh(tenant, model, replica, self.now)
                case "degrade":
                    index.degrade(tenant, model, replica, self.now)
                case "heal":
                    index.heal(tenant, model, replica)
                case _ if not self.stamped:
                    index.sweep(self.now, 10_000)
        return None

    def _govern(self) -> str | None:
        pick, tenant = self.random.choice, self.random.choice(TENANTS)
        policy = CachePolicy(
            eviction=pick((Eviction.LRU, Eviction.LFU, Eviction.LFU)),
            ttl_s=pick((None, 30.0, 200.0)),
            minimum_prefix_tokens=pick((0, 0, 0, 0, 4, 5, 64)),
            minimum_matched_tokens=pick((-1, 0, 0, 1, 2, 3, 4, 8, 64)),
            minimum_matched_share=pick((None, None, 0.0, 0.3, 0.9)),
            routing_floor_score=pick((0.0, 0.0, 0.1, 0.1, 1.0, 3.0)),
            chain_matching=not self._maybe(0.15),
            require_chain=self._maybe(0.06),
            tenant_hot=not self._maybe(0.2),
            affinity=not self._maybe(0.3),
        )
        quota = pick((None, None, None, None, None, None, 0, 4, 9))
        cache, quotas = dict(self.policies.cache), dict(self.policies.quotas)
        cache[tenant] = policy
        quotas.pop(tenant, None)
        if quota is not None:
            quotas[tenant] = quota
        self.policies = Policies(cache=cache, quotas=quotas)
        ttl_s = TTL_S if policy.ttl_s is None else policy.ttl_s
        rule = TenantRule(ttl_s=ttl_s, lfu=policy.eviction is Eviction.LFU, keys_max=quota)
        self.real.govern(tenant, rule)
        self.model.govern(tenant, rule)
        return None

    def query(self) -> Query:
        """A lookup of any kind."""
        pick, maybe = self.random.choice, self._maybe
        query = Query(
            tenant=pick((*TENANTS, "c", "", PROBE)) if maybe(0.12) else "a",
            model=pick((*MODELS, "q", "")) if maybe(0.1) else "m",
            scheme=pick((*SCHEMES, "q", "")) if maybe(0.1) else "s",
            adapter=pick((*ADAPTERS, "y")) if maybe(0.25) else "",
            ttft_ms=pick((0, 0, 1, 99, 100, 199, 200, -4)),
            foreign=maybe(0.01),
        )
        document, chain = pick(tuple(zip(DOCUMENTS, CHAINS, strict=True)))
        depth = self.random.randint(1, len(chain))
        kinds = self.random.choices(
            ("chain", "exact", "ids", "text", "mismatched", "counts", "hole", "none"), (24, 12, 10, 6, 1, 1, 1, 2), k=2
        )
        for kind in kinds if maybe(0.25) else kinds[:1]:
            match kind:
                case "chain" | "mismatched" | "hole":
                    query.block_hashes = list(chain[:depth])
                    query.block_token_counts = [BLOCK] * depth
                    if maybe(0.3):
                        query.block_token_counts = [pick((-3, 0, 1, 2, 70)) for _ in range(depth)]
                    if maybe(0.1):
                        query.block_hashes = [*chain[:depth], chain[0]]
                        query.block_token_counts = [*query.block_token_counts, 1]
                    if kind == "mismatched":
                        query.block_token_counts = list(query.block_token_counts)[1:]
                    if kind == "hole":
                        query.block_hashes = [*list(query.block_hashes)[:-1], b""]
                case "counts":
                    query.block_token_counts = [BLOCK]
                case "exact":
                    query.prefix_hash = pick((*chain, b"stranger"))
                    query.prefix_token_count = pick((0, 1, 4, 8, 100, -1))
                case "ids":
                    query.token_ids = document[: self.random.randint(1, len(document))]
                case "text":
                    query.prompt_text = pick(("system", "sys", "systems, as I said", "s", "x"))
                case _:
                    query.prefix_token_count = pick((0, 100))
        return query

    def _grounds(self, index: Index) -> Grounds:
        return Grounds(
            index=index, policies=self.policies, ranker=self.ranker, tokenizers=Bytes(),
            share_min=self.share_min, block_tokens=BLOCK,
        )  # fmt: skip

    def _lookup(self) -> str | None:
        query = self.query()
        deadline = self.random.randint(1, 12) if self._maybe(0.06) else None
        slow = Slow(self.real) if deadline is None and self._maybe(0.03) else None
        calls = 0

        def expired() -> bool:
            nonlocal calls
            calls += 1
            return slow.asked if slow is not None else deadline is not None and calls >= deadline

        if deadline is None and slow is None and self._maybe(0.1) and self.decide is decide_lookup:
            shown = explain(query, self._grounds(self.real), self.now)
        else:
            shown = None
        index = self.real if slow is None else cast(Index, slow)
        answer = self.decide(query, self._grounds(index), self.now, expired)
        late = slow.asked if slow is not None else deadline is not None and calls >= deadline
        world = World(self.model, self.policies, self.ranker, tokenize, BLOCK, self.share_min)
        told = plain_lookup(query, world, self.now, late)
        self.seen[told.reason] += 1
        if shown is not None and (shown.reason, shown.scored) != (answer.reason, answer.scored):
            return f"explained as {shown}, answered {answer}"
        return None if self._same(answer, told) else f"{query}\n  {answer}\n  {told}"

    def _same(self, answer: Answer, told: Told) -> bool:
        echoed = told.reason == "TIMEOUT" or list(answer.token_ids) == told.token_ids
        return (
            str(answer.reason) == told.reason
            and [tuple(row) for row in answer.scored] == told.rows
            and answer.adapter == told.adapter
            and echoed
        )


def compare(seed: int, seen: Counter[str] | None = None, decide: Callable[..., Answer] = decide_lookup) -> str | None:
    """The first difference in the history of that seed. `seen` counts the answers' codes."""
    history = History(seed, decide)
    difference = history.run()
    if seen is not None:
        seen.update(history.seen)
    return None if difference is None else f"history {seed}, {difference}"
