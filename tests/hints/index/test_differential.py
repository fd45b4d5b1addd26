"""The index against the plain model, result by result, over generated histories: interpreted and compiled."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from terraflow.hints.index.said import Change, TenantRule
from terraflow.hints.words import Entry, Report, Scope, Stats
from tests.hints.model import Model

TENANTS, MODELS, SCHEMES, ADAPTERS = ("t1", "t2"), ("m1", "m2"), ("s1", "s2"), ("", "lora")
REPLICAS = ("r1", "r2", "r3")
HASHES = [bytes([i]) * 8 for i in range(10)] + [bytes([i]) * 32 for i in range(3)] + [b"z", b"y" * 70, b"x" * 64]
TTL_S = 60.0


class History:
    """One history, driven through both."""

    def __init__(self, module: ModuleType, seed: int, *, stamped: bool) -> None:
        self.dice = random.Random(seed)
        cap = self.dice.choice((5, 12, 40))
        self.real: Any = module.Index(entries_max=cap, ttl_s=TTL_S)
        self.module, self.cap = module, cap
        self.model = Model(entries_max=cap, ttl_s=TTL_S)
        self.stamped = stamped
        self.now = 1000.0
        self.told: list[Change] = []
        self.expected: list[Change] = []
        if self.dice.random() < 0.5:
            self.both(lambda index: index.govern("t1", TenantRule(TTL_S, True, None)))
        if self.dice.random() < 0.5:
            self.real.changed, self.model.changed = self.told.append, self.expected.append

    def both(self, call: Callable[[Any], Any]) -> None:
        assert call(self.real) == call(self.model)

    def scope(self) -> Scope:
        pick = self.dice.choice
        return Scope(pick(TENANTS), pick(MODELS), pick(SCHEMES))

    def hashes(self) -> list[bytes]:
        return self.dice.choices(HASHES, k=self.dice.randint(1, 7))

    def step(self) -> None:
        dice, now = self.dice, self.now
        scope, replica, adapter, hashes = self.scope(), dice.choice(REPLICAS), dice.choice(ADAPTERS), self.hashes()
        where = (scope.tenant, scope.model, replica)
        kind = dice.randrange(20)
        if kind < 9:
            report = self.report(scope, replica, adapter, hashes)
            self.both(lambda index: index.ingest(report, now))
        elif kind == 9:
            either = dice.choice((adapter, None))
            self.both(lambda index: index.evict(*where, hashes[0], either, now))
        elif kind == 10:
            either = dice.choice((adapter, None))
            self.both(lambda index: index.evict_many(scope, replica, either, hashes, now))
        elif kind == 11:
            self.both(lambda index: index.clear(*where, now))
        elif kind == 12:
            self.both(lambda index: index.degrade(*where, now))
        elif kind == 13:
            self.both(lambda index: index.heal(*where))
        elif kind == 14:
            rule = TenantRule(dice.choice((20.0, TTL_S)), dice.random() < 0.6, dice.choice((None, None, 0, 3, 8)))
            chosen = dice.choice((rule, rule, None))
            self.both(lambda index: index.govern(scope.tenant, chosen))
        elif kind < 18:
            self.both(lambda index: index.credit(scope, adapter, hashes, replica, now))
        elif kind == 18 and not self.stamped:
            self.both(lambda index: index.sweep(now, 1000))
        else:
            self.both(lambda index: index.refresh(*where, now))
        self.now += dice.choice((0.0, 0.25, 1.0, 7.0, 25.0 if dice.random() < 0.2 else 0.5))

    def report(self, scope: Scope, replica: str, adapter: str, hashes: list[bytes]) -> Report:
        dice = self.dice
        entries = [Entry(adapter, hashes, [dice.randint(-2, 90) for _ in hashes], dice.randint(-1, 5))]
        if dice.random() < 0.3:
            entries.append(Entry(dice.choice(ADAPTERS), hashes[:1], [dice.randint(1, 90)], 2))
        if dice.random() < 0.1:
            entries.append(Entry(adapter, [b"", b"a"], [1, 2], 1))
        stats = Stats(pressure=dice.random()) if dice.random() < 0.2 else None
        skew_s = dice.choice((0.0, -9.0, -1.0, 2.0, 99.0)) if self.stamped else 0.0
        scheme = scope.scheme if dice.random() < 0.95 else ""
        return Report(
            replica=replica,
            model=scope.model,
            tenant=scope.tenant,
            scheme=scheme,
            entries=tuple(entries),
            stats=stats,
            skew_s=skew_s,
        )

    def compare(self) -> None:
        scope, adapter, hashes, now = self.scope(), self.dice.choice(ADAPTERS), self.hashes(), self.now
        counts = [16] * len(hashes)
        self.both(lambda index: sorted(index.chain(scope, adapter, hashes, counts, now)))
        self.both(lambda index: sorted(index.exact(scope, adapter, hashes[0], now)))
        self.both(lambda index: list(index.replicas(scope, now)))
        self.both(lambda index: index.known(*scope, now))
        self.both(lambda index: index.known("nobody", "m1", "s1", now))
        self.both(lambda index: index.states(None, None, now))
        self.both(lambda index: index.stats(scope.tenant, scope.model, "r1"))
        self.both(lambda index: (index.keys(), index.keys(scope.tenant), index.keys(None, "m1"), index.entries()))
        self.both(lambda index: index.hot(scope.tenant, None, now))
        self.both(lambda index: (dict(index.removals), dict(index.tenant_removals)))
        assert sorted(self.told) == sorted(self.expected)

    def restart(self) -> None:
        """A new index from the old one's dump: what follows must not tell them apart."""
        fresh = self.module.Index(entries_max=self.cap, ttl_s=TTL_S)
        for tenant in self.real.governed:
            rule = self.model._rule(tenant)
            fresh.govern(tenant, rule)
        for piece in self.real.dump(self.now):
            fresh.restore(piece, self.now)
        self.real = fresh

    def everything_holds(self) -> None:
        for tenant in TENANTS:
            for model in MODELS:
                for scheme in SCHEMES:
                    scope = Scope(tenant, model, scheme)
                    for adapter in ADAPTERS:
                        for one in HASHES:
                            mine = sorted(self.real.exact(scope, adapter, one, self.now))
                            theirs = sorted(self.model.exact(scope, adapter, one, self.now))
                            assert [row[:3] + row[4:] for row in mine] == [row[:3] + row[4:] for row in theirs]


@pytest.mark.parametrize("stamped", [False, True])
def test_every_result_is_the_models(module: ModuleType, stamped: bool) -> None:
    for seed in range(120):
        history = History(module, seed, stamped=stamped)
        for _ in range(40):
            history.step()
            history.compare()


def test_a_restart_from_a_snapshot_goes_on_as_if_there_had_been_none(module: ModuleType) -> None:
    for seed in range(120):
        history = History(module, seed, stamped=seed % 2 == 0)
        history.stamped = True
        for _ in range(25):
            history.step()
        history.restart()
        for _ in range(25):
            history.everything_holds()
            history.step()
