"""The exclusion table against Cedar: the same cases, another engine, rules written from the documentation.

For every capability both must agree whether it is permitted and, if not, which exclusion comes first. Cedar skips
a policy that fails, so a failing one counts as a mismatch here.

    python -m trust.policy_cedar [cases] [seed]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import cedarpy

from terraflow.contracts.routes import Verdict
from trust.policy_cases import CLASSES, Case, cases, verdicts

TEXT = (Path(__file__).parent / "policy.cedar").read_text("utf-8")
POLICIES = cedarpy.PolicySet.from_str(TEXT)
ORDER = tuple(re.findall(r'@id\("(\w+)"\)', TEXT))
UNHEALTHY, BURST = ORDER[-2:]
BATCH = 250


class Tally(NamedTuple):
    """What a run saw: capabilities decided, how they came out, and where the engines differed."""

    decided: int
    outcomes: Counter[str]
    mismatches: list[str]


def compare(
    seed: int, count: int, decide: Callable[[Case], tuple[Verdict, ...]] = verdicts, mismatches_max: int = 10
) -> Tally:
    """Run `count` cases through both engines."""
    outcomes: Counter[str] = Counter()
    mismatches: list[str] = []
    stream = cases(seed, count)
    while batch := list(islice(stream, BATCH)):
        for case, theirs in zip(batch, by_cedar(batch), strict=True):
            ours = [verdict.exclusion.value if verdict.exclusion else "" for verdict in decide(case)]
            outcomes.update(code or "permitted" for code in ours)
            if ours != theirs and len(mismatches) < mismatches_max:
                mismatches.append(f"ours {ours}, Cedar's {theirs}, of {case}")
    return Tally(outcomes.total(), outcomes, mismatches)


def by_cedar(batch: list[Case]) -> Iterator[list[str]]:
    """For each case the first exclusion of each capability, empty where Cedar allows it."""
    held = _ask(batch, [False] * len(batch))
    exhausted = [_exhausted(case, found) for case, found in zip(batch, held, strict=True)]
    for found in _ask(batch, exhausted):
        yield [next((code for code in ORDER if code in codes), "") for codes in found]


def _exhausted(case: Case, held: list[frozenset[str]]) -> bool:
    """Some private capability is permitted, health aside, and each such one is unhealthy, full or pressed."""
    able = [
        bool(codes) or not state["has_free_slot"] or state["under_pressure"]
        for entry, state, codes in zip(case.capabilities, case.states, held, strict=True)
        if entry["boundary"] == "private" and codes <= {UNHEALTHY}
    ]
    return able != [] and all(able)


def _ask(batch: list[Case], exhausted: list[bool]) -> list[list[frozenset[str]]]:
    entities, requests = [], []
    for at, case in enumerate(batch):
        entities.append(_entity("Contract", f"{at}", _terms(case.contract)))
        for entry, state in zip(case.capabilities, case.states, strict=True):
            name = f"{at}/{entry['id']}"
            entities.append(_entity("Capability", name, _model(entry)))
            requests.append(
                {
                    "principal": {"type": "Contract", "id": f"{at}"},
                    "action": {"type": "Action", "id": "call"},
                    "resource": {"type": "Capability", "id": name},
                    "context": _context(case.request, state, exhausted[at]),
                }
            )
    answers = iter(cedarpy.is_authorized_batch(requests, POLICIES, entities))
    return [[_codes(next(answers)) for _ in case.capabilities] for case in batch]


def _codes(answer: cedarpy.AuthzResult) -> frozenset[str]:
    if answer.diagnostics.errors:
        return frozenset({"an error"})
    if answer.allowed:
        return frozenset()
    return frozenset(answer.diagnostics.id_annotations_by_reason[reason] for reason in answer.diagnostics.reasons)


def _entity(kind: str, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    return {"uid": {"type": kind, "id": name}, "attrs": attributes, "parents": []}


def _terms(contract: dict[str, Any]) -> dict[str, Any]:
    names = ("capabilities", "families", "jurisdictions", "consequence_tier", "egress")
    return {name: contract[name] for name in (*names, "training_allowed", "retention_days_max")}


def _model(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "family", "lifecycle", "consequence_tiers", "boundary", "jurisdiction", "sensitive_types")
    kept = {name: entry[name] for name in (*names, "prefix_cache", "tools", "output_tokens_max", "enabled")}
    return kept | {
        "trains": entry["terms"]["trains"],
        "retention_days": entry["terms"]["retention_days"],
        "class_max": CLASSES.index(entry["data_class_max"]),
        "window": entry["context_window_tokens"],
        "paid": entry["boundary"] == "external" and entry["provider"] != "simulated",
        "has_prices": entry["prices"] is not None,
        "has_audio_prices": {"audio_input", "audio_output"} <= set(entry["prices"] or ()),
        "has_secret": entry["secret"] is not None,
    }


def _context(request: dict[str, Any], state: dict[str, Any], exhausted: bool) -> dict[str, Any]:
    return {
        "class": CLASSES.index(request["data_class"]),
        "sensitive_types": request["sensitive_types"],
        "tools_offered": request["tools_offered"],
        "bytes": request["input_bytes"],
        "output_tokens": request["output_tokens_max"],
        "audio": request["audio"],
        "switched_on": state["enabled"],
        "secret_present": state["secret_present"],
        "healthy": state["healthy"],
        "inside_boundary": state["inside_boundary"],
        "exhausted": exhausted,
    }


def main() -> int:
    """Print the tally; 1 if the engines differed anywhere, or an exclusion was never met."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"policy against Cedar: {count} cases, seed {seed}", flush=True)
    tally = compare(seed, count)
    for name in ("permitted", *ORDER):
        print(f"  {tally.outcomes[name]:>8}  {name}")
    for mismatch in tally.mismatches:
        print(f"MISMATCH {mismatch}")
    unmet = [code for code in ORDER if not tally.outcomes[code]]
    print(f"{tally.decided} capabilities decided, {len(tally.mismatches)} mismatches, never met: {unmet or 'none'}")
    return 1 if tally.mismatches or unmet else 0


if __name__ == "__main__":
    sys.exit(main())
