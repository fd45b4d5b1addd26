"""One process of callers in a storm: many tasks, a fixed number of requests, and what they were told.

    python -m tests.harness.storm_caller < spec.json

The specification is a `Spec`; the answer, one JSON line on standard output, is a `Heard`.
"""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec
import uvloop

from tests.harness.line import Line

LONG_ANSWER = 4_000
"""Tokens of an answer that is too dear for any one request."""
LONG_SHARE = 0.03


class Spec(msgspec.Struct):
    """Where to call, as whom, for what: `keys` by tenant, `purposes` are pairs of tenant and workload."""

    port: int
    keys: dict[str, str]
    purposes: list[tuple[str, str]]
    tasks: int
    count: int
    seed: int


class Heard(msgspec.Struct):
    """How often which code (with its detail, where it has one) was answered, and micro-dollars by tenant and workload
    as the answers' headers named them."""

    codes: dict[str, int]
    costs: dict[str, int]


class _Detail(msgspec.Struct):
    detail: str | None = None


class _Error(msgspec.Struct):
    terraflow: _Detail = msgspec.field(default_factory=_Detail)


_detail = msgspec.json.Decoder(_Error).decode


class _Callers:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._left = spec.count
        self._chance = random.Random(spec.seed)
        self.heard = Heard({}, {})

    async def run(self) -> None:
        await asyncio.gather(*(self._caller() for _ in range(self._spec.tasks)))

    async def _caller(self) -> None:
        line = Line(self._spec.port)
        try:
            while self._left > 0:
                self._left -= 1
                await self._ask(line)
        finally:
            line.close()

    async def _ask(self, line: Line) -> None:
        tenant, workload = self._chance.choice(self._spec.purposes)
        tokens = LONG_ANSWER if self._chance.random() < LONG_SHARE else self._chance.randint(20, 100)
        said = "x" * self._chance.randint(0, 400)
        body = b'{"messages":[{"role":"user","content":"%b"}],"max_tokens":%d}' % (said.encode(), tokens)
        lines = [f"Authorization: Bearer {self._spec.keys[tenant]}", f"X-TerraFlow-Workload: {workload}"]
        read = await line.ask(body, lines)
        code = read.headers["x-terraflow-reason"]
        detail = None if read.status == 200 else _detail(read.body).terraflow.detail
        named = code if not detail else f"{code} {detail}"
        whole, _, part = read.headers["x-terraflow-cost-usd"].partition(".")
        cost = int(whole) * 1_000_000 + int(part.ljust(6, "0"))
        self.heard.codes[named] = self.heard.codes.get(named, 0) + 1
        purpose = f"{tenant}/{workload}"
        self.heard.costs[purpose] = self.heard.costs.get(purpose, 0) + cost


def main() -> None:
    """Read the specification, call, and tell."""
    callers = _Callers(msgspec.json.decode(sys.stdin.buffer.read(), type=Spec))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(callers.run())
    print(msgspec.json.encode(callers.heard).decode(), flush=True)


if __name__ == "__main__":
    main()
