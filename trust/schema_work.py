"""No schema that is accepted makes an answer that is validated cost more than its bound of time.

1. Schemas are drawn at random, biased to what multiplies work: references that meet again, branches under branches,
   recursion, patterns with repetitions, long enumerations. Answers are drawn to suit: deep where the schema recurses,
   long where it reads text.
2. What is accepted is validated in a process of its own whose CPU time the kernel limits: a hang is a death, not a
   wait. Ten times the nominal time of `UNITS_MAX` is allowed to one answer.
3. The proof must bite: with a bound that counts every schema as one visit, the same draws must break the limit.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from terraflow.contracts import schemas
from terraflow.contracts.schema_work import Work
from terraflow.contracts.schemas import UNITS_MAX, SchemaInvalid, compile_schema

Schema = dict[str, Any]

CASES = 3_000
SEEDS = 4
CPU_S_MAX = 10 * UNITS_MAX * 10e-9


def ladder(keyword: str, steps: int, leaf: Schema | None = None) -> Schema:
    """`steps` schemas, each of which leads to the one below twice, from the same place."""
    defs: Schema = {"a0": {"type": "integer"} if leaf is None else leaf}
    for step in range(1, steps + 1):
        defs[f"a{step}"] = {keyword: [{"$ref": f"#/$defs/a{step - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/a{steps}"}


def union_tree(kinds: int) -> Schema:
    """An expression of `kinds` kinds of nodes, each with two expressions below; a number is one as well."""
    either: Schema = {"$ref": "#/$defs/either"}
    nodes = [
        {"properties": {"kind": {"const": str(kind)}, "left": either, "right": either}, "required": ["kind"]}
        for kind in range(kinds)
    ]
    nodes = [{"type": "object", **node} for node in nodes]
    return {"$defs": {"either": {"anyOf": [{"type": "number"}, *nodes]}}, **either}


_PATTERNS = ("^[a-z]+$", "[ab]{0,40}c", "(a|b)*a(a|b){9}[c-e]", "^.{1,300}$", "(?:a?b?){20}x", r"^\w+@\w+\.\w+$")


class _Draw:
    """One schema and answers for it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [f"d{i}" for i in range(self.random.randrange(1, 12))]

    def schema(self) -> Schema:
        """A root with definitions that refer to one another."""
        shape = self.random.random()
        if shape < 0.1:
            return ladder(self.random.choice(("anyOf", "allOf", "oneOf")), self.random.randrange(4, 40))
        if shape < 0.2:
            return union_tree(self.random.randrange(1, 5))
        return {"$defs": {name: self._part(2) for name in self.names}, **self._part(2)}

    def _part(self, depth: int) -> Any:
        draw = self.random
        if depth == 0 or draw.random() < 0.3:
            leaf: Schema = draw.choice(
                (
                    {"$ref": f"#/$defs/{draw.choice(self.names)}"},
                    {"type": draw.choice(("object", "array", "string", "integer"))},
                    {"pattern": draw.choice(_PATTERNS)},
                    {"uniqueItems": True},
                    {"enum": ["a" * draw.randrange(1, 40) for _ in range(draw.randrange(1, 50))]},
                    {"multipleOf": draw.choice((1, 0.01, 1e-300))},
                    {"minLength": 3},
                )
            )
            return leaf
        part: Schema = {}
        for keyword in draw.sample(("allOf", "anyOf", "oneOf", "prefixItems"), draw.randrange(0, 3)):
            part[keyword] = [self._part(depth - 1) for _ in range(draw.randrange(1, 4))]
        for keyword in draw.sample(("not", "items", "contains", "additionalProperties"), draw.randrange(0, 3)):
            part[keyword] = self._part(depth - 1)
        if draw.random() < 0.5:
            part["properties"] = {name: self._part(depth - 1) for name in draw.sample("abc", draw.randrange(1, 4))}
        if draw.random() < 0.2:
            part["patternProperties"] = {name: self._part(depth - 1) for name in draw.sample(("a", "b", ".", ""), 2)}
        return part

    def answers(self) -> Iterator[str]:
        """Deep lists and objects, wide ones, long texts."""
        draw = self.random
        for kind in range(3):
            value: Any = draw.choice((1, "ab", {}, []))
            for _ in range(draw.randrange(1, 50)):
                wide = draw.randrange(1, 4)
                keyed = kind == 0 or (kind == 2 and draw.random() < 0.5)
                value = dict.fromkeys(draw.sample("abc", wide), 1) | {"a": value} if keyed else [value, *[1] * wide]
            yield json.dumps(value)
        yield json.dumps([{"a": i, "b": [i]} for i in range(draw.randrange(10, 5_000))])
        yield json.dumps("".join(draw.choices("ab", k=draw.randrange(10, 60_000))))
        yield json.dumps({"left": {"left": {"kind": "0", "left": 1, "right": 2}, "kind": "9"}, "kind": "0"})


def run(seed: int, counted: bool) -> None:
    """Draw and validate; one line of JSON: how many were accepted and refused, and the slowest of each thing done."""
    accepted = refused = 0
    slowest_s = {"compile": 0.0, "validate": 0.0}
    if not counted:
        schemas.work_of = lambda schema: Work([1], [0])

    def timed(what: str, work: Callable[[], Any]) -> Any:
        used_s = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used_s + CPU_S_MAX) + 1, resource.RLIM_INFINITY))
        try:
            return work()
        finally:
            slowest_s[what] = max(slowest_s[what], time.process_time() - used_s)

    for case in range(CASES):
        draw = _Draw(seed * CASES + case)
        schema = draw.schema()
        try:
            validator = timed("compile", partial(compile_schema, schema))
        except SchemaInvalid:
            refused += 1
            continue
        accepted += 1
        for text in draw.answers():
            timed("validate", partial(validator.first_fault, [text]))
    said = {f"{what}_ms": round(s * 1e3, 1) for what, s in slowest_s.items()}
    print(json.dumps({"accepted": accepted, "refused": refused, **said}))


def _too_slow(code: int, said: str) -> bool:
    if code != 0:
        return True
    heard = json.loads(said)
    return bool(max(heard["compile_ms"], heard["validate_ms"]) > CPU_S_MAX * 1e3)


def _in_its_own_process(seed: int, counted: bool) -> tuple[int, str]:
    command = [sys.executable, "-c", f"from trust.schema_work import run; run({seed}, {counted})"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip() or done.stderr.strip()[-300:]


def main() -> int:
    """The proof."""
    for seed in range(SEEDS):
        code, said = _in_its_own_process(seed, True)
        print(f"seed {seed}: {said}", flush=True)
        if _too_slow(code, said) or json.loads(said)["accepted"] < CASES // 10:
            print(f"seed {seed}: broke the limit, or drew too few schemas that are accepted (exit {code})")
            return 1
    code, said = _in_its_own_process(0, False)
    caught = _too_slow(code, said)
    print(
        f"without the bound: {'the limit is broken, as it must be' if caught else f'NOT caught: {said}'} (exit {code})"
    )
    return 0 if caught else 1


if __name__ == "__main__":
    sys.exit(main())
