"""Raising a request's data class, or taking an entitlement away, never lets it go anywhere it could not go before.

Each pair is a generated case and the same case with one thing made stricter. What must not grow is the set that
policy permits, capacity aside: under a burst contract an external capability may become usable when the stricter
request fits only private capabilities that are full, which is what burst means. For every other contract the set
is the permitted one itself.

    python -m trust.policy_pairs [pairs] [seed]
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from terraflow.contracts.routes import Verdict
from terraflow.core.reasons import Governed
from trust.policy_cases import CLASSES, TYPES, Case, cases, verdicts

Stricter = Callable[[Random, Case], bool]
"""Makes one thing of the case stricter, in place; False if there was nothing to make stricter."""


def _raise_class(rng: Random, case: Case) -> bool:
    at = CLASSES.index(case.request["data_class"])
    return _put(case.request, "data_class", rng.choice(CLASSES[at + 1 :] or (None,)))


def _add_type(rng: Random, case: Case) -> bool:
    absent = [name for name in TYPES if name not in case.request["sensitive_types"]]
    return bool(absent) and _put(
        case.request, "sensitive_types", [*case.request["sensitive_types"], rng.choice(absent)]
    )


def _grow(field: str) -> Stricter:
    return lambda rng, case: _put(case.request, field, case.request[field] * rng.randint(2, 9))


def _offer_tools(rng: Random, case: Case) -> bool:
    return not case.request["tools_offered"] and _put(case.request, "tools_offered", True)


def _drop_from_contract(field: str, every: tuple[str, ...] = ()) -> Stricter:
    def stricter(rng: Random, case: Case) -> bool:
        listed = list(every) if case.contract[field] == ["*"] else case.contract[field]
        return _put(case.contract, field, _without_one(rng, listed))

    return stricter


def _forbid_training(rng: Random, case: Case) -> bool:
    return case.contract["training_allowed"] and _put(case.contract, "training_allowed", False)


def _shorten_retention(rng: Random, case: Case) -> bool:
    return case.contract["retention_days_max"] > 0 and _put(case.contract, "retention_days_max", rng.randint(0, 29))


def _narrow_egress(rng: Random, case: Case) -> bool:
    return _put(case.contract, "egress", {"allowed": "burst", "burst": "never"}.get(case.contract["egress"]))


def _drop_from_capability(field: str) -> Stricter:
    return lambda rng, case: _of_one(rng, case, field, lambda value: _without_one(rng, value))


def _lower_class(rng: Random, case: Case) -> bool:
    return _of_one(rng, case, "data_class_max", lambda label: rng.choice(CLASSES[: CLASSES.index(label)] or (None,)))


def _retire(rng: Random, case: Case) -> bool:
    return _of_one(rng, case, "lifecycle", lambda state: "retired" if state == "approved" else None)


def _switch_off(field: str) -> Stricter:
    return lambda rng, case: _of_one(rng, case, field, lambda value: False if value else None)


def _shrink(field: str) -> Stricter:
    return lambda rng, case: _of_one(rng, case, field, lambda value: value // 2 or None)


def _share_cache(rng: Random, case: Case) -> bool:
    return _of_one(rng, case, "prefix_cache", lambda value: "shared" if value != "shared" else None)


STRICTER: dict[str, Stricter] = {
    "raise the data class": _raise_class,
    "add a sensitive type": _add_type,
    "lengthen the input": _grow("input_bytes"),
    "lengthen the answer": _grow("output_tokens_max"),
    "offer tools": _offer_tools,
    "take a capability from the contract": _drop_from_contract("capabilities"),
    "take a family from the contract": _drop_from_contract("families", ("fir", "oak", "elm")),
    "take a jurisdiction from the contract": _drop_from_contract("jurisdictions", ("in", "eu", "us")),
    "forbid training": _forbid_training,
    "shorten retention": _shorten_retention,
    "narrow egress": _narrow_egress,
    "take a sensitive type from a capability": _drop_from_capability("sensitive_types"),
    "take a consequence tier from a capability": _drop_from_capability("consequence_tiers"),
    "lower a capability's class": _lower_class,
    "retire a capability": _retire,
    "switch a capability off": _switch_off("enabled"),
    "take tools from a capability": _switch_off("tools"),
    "shrink a context window": _shrink("context_window_tokens"),
    "share a prompt cache": _share_cache,
}


def _put(target: dict[str, Any], field: str, value: Any) -> bool:
    if value is None:
        return False
    target[field] = value
    return True


def _without_one(rng: Random, values: list[str]) -> list[str] | None:
    if not values:
        return None
    gone = rng.choice(values)
    return [value for value in values if value != gone]


def _of_one(rng: Random, case: Case, field: str, change: Callable[[Any], Any]) -> bool:
    entry = rng.choice(case.capabilities)
    return _put(entry, field, change(entry[field]))


class Tally(NamedTuple):
    """Pairs by what was made stricter, how often that shrank the set, and where it grew."""

    tried: Counter[str]
    shrank: Counter[str]
    grew: list[str]


def compare(seed: int, pairs: int, decide: Callable[[Case], tuple[Verdict, ...]] = verdicts) -> Tally:
    """Run `pairs` pairs."""
    rng = Random(seed)
    tally = Tally(Counter(), Counter(), [])
    stream = cases(seed, pairs * 3)
    while tally.tried.total() < pairs:
        before = next(stream)
        after = copy.deepcopy(before)
        name = rng.choice(list(STRICTER))
        if not STRICTER[name](rng, after):
            continue
        was, became = permitted(decide(before), before), permitted(decide(after), before)
        tally.tried[name] += 1
        tally.shrank[name] += became < was
        if not became <= was:
            tally.grew.append(f"{name}: {sorted(became - was)} of {before}")
    return tally


def permitted(found: tuple[Verdict, ...], case: Case) -> frozenset[str]:
    """The capabilities that policy permits, capacity aside where the contract says burst."""
    aside = {None, Governed.BURST_ONLY_ON_CAPACITY} if case.contract["egress"] == "burst" else {None}
    return frozenset(verdict.capability for verdict in found if verdict.exclusion in aside)


def main() -> int:
    """Print the tally; 1 if the set grew anywhere, or something stricter never made it smaller."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"stricter cases never permit more: {pairs} pairs, seed {seed}", flush=True)
    tally = compare(seed, pairs)
    for name in STRICTER:
        print(f"  {tally.tried[name]:>6} pairs, fewer permitted in {tally.shrank[name]:>5}: {name}")
    for text in tally.grew[:10]:
        print(f"GREW {text}")
    idle = [name for name in STRICTER if not tally.shrank[name]]
    print(f"{tally.tried.total()} pairs, {len(tally.grew)} grew, without effect: {idle or 'none'}")
    return 1 if tally.grew or idle else 0


if __name__ == "__main__":
    sys.exit(main())
