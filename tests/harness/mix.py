"""Callers that ask for everything a plane does, and keep account of what they were told.

1. An ask is one body with a word of its own in it, sent once; a keyed one is sent again after a crash, with the same
   key, until it is answered, and sometimes twice at once.
2. What a caller has read to its end is acknowledged: from then on the record must say the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import deque
from typing import Any, NamedTuple

import msgspec

from terraflow.core.reasons import Governed
from tests.harness import bundle
from tests.harness.bundle import limit, purpose, remote, sim
from tests.harness.counting import Counting
from tests.harness.line import Line

TENANTS = ("acme", "umbra")
SCHEMA = {"type": "object", "properties": {"paid": {"type": "boolean"}}, "required": ["paid"]}
CACHED_TEXTS = 6
POOR_LIMIT = 2_000
"""Micro-dollars an hour of the workload `poor`."""

Json = dict[str, Any]


class Kind(NamedTuple):
    """What is asked: the workload, how often among a hundred, and the codes that may come of it."""

    name: str
    workload: str
    share: int
    codes: tuple[Governed, ...]
    keyed: bool = False
    streamed: bool = False


_REPLAYED = (Governed.IDEMPOTENCY_REPLAY, Governed.IDEMPOTENCY_REPLAY_NO_CONTENT)

# fmt: off
KINDS = (
    Kind("plain",    "plain",    20, (Governed.PERMITTED,)),
    Kind("keyed",    "plain",    22, (Governed.PERMITTED, *_REPLAYED), keyed=True),
    Kind("streamed", "plain",    12, (Governed.PERMITTED,), streamed=True),
    Kind("kept",     "plain",     6, (Governed.PERMITTED, *_REPLAYED), keyed=True, streamed=True),
    Kind("left",     "plain",     4, (), streamed=True),
    Kind("cached",   "cached",   10, (Governed.PERMITTED, Governed.CACHE_HIT)),
    Kind("repaired", "repaired", 10, (Governed.VALIDATION_REPAIRED,)),
    Kind("flaky",    "flaky",     6, (Governed.PROVIDER_ERROR_RECOVERED,)),
    Kind("refused",  "strict",    6, (Governed.DATA_CLASS_NOT_PERMITTED,)),
    Kind("limited",  "limited",   2, (Governed.PERMITTED, Governed.RATE_LIMITED)),
    Kind("poor",     "poor",      2, (Governed.PERMITTED, Governed.BUDGET_EXHAUSTED)),
)
# fmt: on


def document(port: int) -> Json:
    """The bundle: the same workloads in two tenants, over models on one port, every level counted."""
    model, shaky, spare = remote("model", port), remote("shaky", port), sim("spare")
    purposes = []
    for tenant in TENANTS:
        purposes += [
            purpose("plain", model, tenant=tenant),
            purpose("cached", model, tenant=tenant, unit="second", response_cache={"ttl_s": 86_400}),
            purpose("repaired", model, tenant=tenant, output={"json_schema": SCHEMA}),
            purpose("flaky", shaky, tenant=tenant, unit="second"),
            purpose("strict", model, tenant=tenant, data_classes=["public"]),
            purpose("limited", spare, tenant=tenant, requests_per_minute=1),
            purpose("poor", model, tenant=tenant),
        ]
    budgets = [limit("workload", "poor", "hour", f"{POOR_LIMIT / 1e6:.6f}", tenant) for tenant in TENANTS]
    budgets += [limit("tenant", tenant, "month", "100000", tenant) for tenant in TENANTS]
    return bundle.document(*purposes, budgets=budgets)


class Told(NamedTuple):
    """An answer that was read to its end. `code` is None for a stream that flowed, whose code is in its record."""

    kind: Kind
    tenant: str
    request_id: str
    status: int
    code: str | None


class Ask(msgspec.Struct):
    """One body, and how often it is still to be answered."""

    word: str
    kind: Kind
    tenant: str
    body: bytes
    open: int = 0


class Mix:
    """The callers of one plane after another. `told` is what was acknowledged since it was last emptied, `odd` what
    no plane may answer; `asks` are by digest of the body as evidence writes it, until they are judged and over."""

    def __init__(self, keys: dict[str, str], seed: int) -> None:
        self.told: list[Told] = []
        self.odd: list[str] = []
        self.asks: dict[str, Ask] = {}
        self.answered = 0
        self._keys = keys
        self._chance = random.Random(seed)
        self._serial = seed * 1_000_000
        self._owed: deque[Ask] = deque()
        self._drawn = [kind for kind in KINDS for _ in range(kind.share)]
        self._over = False

    async def run(self, port: int, callers: int) -> None:
        """Ask until the plane is gone."""
        await self._call(port, callers, owed_only=False)

    async def settle(self, port: int, callers: int) -> None:
        """Ask again what is still to be answered, and nothing else."""
        await self._call(port, callers, owed_only=True)

    async def _call(self, port: int, callers: int, *, owed_only: bool) -> None:
        self._over = False
        await asyncio.gather(*(self._caller(port, owed_only) for _ in range(callers)))

    async def _caller(self, port: int, owed_only: bool) -> None:
        line = Line(port)
        try:
            while not self._over and (self._owed or not owed_only):
                ask = self._owed.popleft() if self._owed else self._new()
                try:
                    await self._ask(line, ask)
                except (OSError, EOFError):
                    if ask.kind.keyed:
                        self._owed.append(ask)
                    else:
                        ask.open -= 1
                    self._over = True
        finally:
            line.close()

    def _new(self) -> Ask:
        kind, tenant = self._chance.choice(self._drawn), self._chance.choice(TENANTS)
        self._serial += 1
        word = f"{kind.name}:{tenant}-{self._serial}"
        if kind.name == "cached":
            word = f"{kind.name}:{tenant}-{self._serial // 500}-{self._chance.randrange(CACHED_TEXTS)}"
        fields: Json = {"messages": [{"role": "user", "content": f"ask {word}"}]}
        if kind.streamed:
            fields |= {"stream": True}
        body = json.dumps(fields).encode()
        ask = self.asks.setdefault(hashlib.sha256(body).hexdigest(), Ask(word, kind, tenant, body))
        ask.open += 1
        if kind.keyed and self._chance.random() < 0.3:
            ask.open += 1
            self._owed.append(ask)
        return ask

    async def _ask(self, line: Line, ask: Ask) -> None:
        kind = ask.kind
        lines = [f"Authorization: Bearer {self._keys[ask.tenant]}", f"X-TerraFlow-Workload: {kind.workload}"]
        if kind.keyed:
            lines.append(f"Idempotency-Key: key of {ask.word}")
        if kind.name == "left":
            await self._leave(line, ask, lines)
            return
        read = await line.ask(ask.body, lines)
        ask.open -= 1
        self.answered += 1
        code = read.headers.get("x-terraflow-reason")
        request_id = read.headers.get("x-terraflow-request-id", "")
        whole = read.body.endswith(b"data: [DONE]\n\n") if kind.streamed and read.status == 200 else True
        known = code in kind.codes or (code is None and kind.streamed and read.status == 200)
        if not (whole and known and request_id):
            self.odd.append(f"{ask.word} was answered {read.status} {code}: {read.body[:200]!r}")
        self.told.append(Told(kind, ask.tenant, request_id, read.status, code))

    async def _leave(self, line: Line, ask: Ask, lines: list[str]) -> None:
        """Read the first pieces of a stream, and go."""
        await line.send(ask.body, lines)
        await line.head()
        for _ in range(self._chance.randrange(4)):
            await line.piece()
        ask.open -= 1
        line.close()

    def owes(self, ask: Ask) -> bool:
        """Whether an ask is still to be answered."""
        return ask.open > 0

    def end(self, digest: str, upstream: Counting) -> tuple[Ask, int, int]:
        """Take an ask that is over out of the account; the calls it made and their cost."""
        ask = self.asks.pop(digest)
        return ask, *upstream.forget(ask.word)
