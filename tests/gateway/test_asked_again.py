"""A recorded decision can be asked again: the record and its bundle give the same verdicts and the same plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from terraflow.app.keys import read_public_key
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.plan import Plan, decide_routes
from terraflow.contracts.routes import Condition, RequestFacts
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES
from terraflow.evidence import record
from terraflow.evidence.checkpoint import origin
from terraflow.evidence.note import verifier_key
from terraflow.verifier.formats import Refused, parse_key
from terraflow.verifier.proof import verify_answer
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import Inside, plane_inside
from tests.harness.wire import MemoryWire

WORDS = {"role": "user", "content": "hello"}
CARD = {"role": "user", "content": "my card is 4111 1111 1111 1111"}
TOOL = {"type": "function", "function": {"name": "look"}}

ASKED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"messages": [WORDS]}, {}),
    ({"messages": [CARD]}, {}),
    ({"messages": [WORDS], "model": "outside"}, {}),
    ({"messages": [WORDS], "max_tokens": 5, "tools": [TOOL]}, {}),
    ({"messages": [WORDS], "modalities": ["text", "audio"]}, {}),
    ({"messages": [WORDS]}, {"x-terraflow-data-class": "restricted", "x-terraflow-sensitive-types": "phi"}),
    ({"messages": [{"role": "user", "content": "word " * 5_000}]}, {}),
]


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    made = purpose(
        "w",
        sim("small", context_window_tokens=2_000, output_tokens_max=100, tools=False),
        sim("sick", {"fail": "server_error"}, data_class_max="internal"),
        sim("off", secret="env:NO_SUCH_SECRET", provider="openai", endpoint="http://127.0.0.1:9/v1"),
        sim("outside", boundary="external", prefix_cache="shared", sensitive_types=[], jurisdiction="us"),
        sim("abroad", family="other", jurisdiction="us"),
        egress="burst",
        families=["sim"],
        tools=["look"],
        fallback={"small": ["sick", "outside"], "sick": ["small"]},
        safe_path="abroad",
    )
    elsewhere = purpose("o", sim("unrelated"))
    async with plane_inside(tmp_path / "data", document(made, elsewhere)) as plane:
        for _ in range(3):
            now = plane.parts.plane.clock.monotonic()
            plane.parts.plane.health.failed("sick", now, now, None)
        yield plane


def again(intent: record.Intent, bundle: Bundle) -> tuple[list[tuple[str, str | None, str]], list[str]]:
    """What the policy says to the facts of a record: verdicts, and the plan's order."""
    asked, scan = intent.request, intent.request.scan if intent.request else None
    assert asked is not None and scan is not None
    facts = RequestFacts(
        data_class=DATA_CLASSES[scan.data_class],
        sensitive_types=frozenset(SENSITIVE_TYPES[name] for name in scan.types),
        tools_offered=asked.tools is not None,
        input_bytes=asked.input_bytes or 0,
        output_tokens_max=asked.max_output_tokens or 0,
        audio=asked.audio,
    )
    conditions = {
        row.capability: Condition(
            enabled=row.enabled,
            secret_present=row.secret_present,
            healthy=row.healthy,
            inside_boundary=row.inside_boundary,
            has_free_slot=row.has_free_slot,
            recent_faults=row.recent_faults,
            under_pressure=row.under_pressure,
        )
        for row in intent.policy
    }
    costs = {row.capability: row.worst_case_micro_usd for row in intent.policy}
    workload = bundle.workloads[intent.tenant, intent.workload or ""]
    decided = decide_routes(workload, facts, conditions, lambda c, _: costs[c.id] or 0, asked.pinned)
    plan = [route.capability.id for route in decided.outcome.routes] if isinstance(decided.outcome, Plan) else []
    return [(v.capability, v.exclusion, v.detail) for v in decided.verdicts], plan


@pytest.mark.parametrize(("body", "headers"), ASKED)
async def test_the_record_holds_every_fact(inside: Inside, body: dict[str, Any], headers: dict[str, str]) -> None:
    plane = inside.parts.plane
    heard = await inside.chat(body, **headers)
    entries = await plane.store.find_entries("acme", "web", heard.headers["x-terraflow-request-id"])
    intent = record.decode(entries[0].data)
    bundle = plane.bundles.active()
    assert isinstance(intent, record.Intent) and isinstance(bundle, Bundle)
    assert intent.bundle is not None and intent.bundle.digest == bundle.digest
    verdicts, plan = again(intent, bundle)
    assert verdicts == [(row.capability, row.exclusion, row.detail) for row in intent.policy]
    assert plan == list(intent.plan)


async def test_the_cases_meet_many_exclusions_and_both_ends(inside: Inside) -> None:
    met: set[str | None] = set()
    statuses = set()
    for body, headers in ASKED:
        heard = await inside.chat(body, **headers)
        statuses.add(heard.status)
        entries = await inside.parts.plane.store.find_entries("acme", "web", heard.headers["x-terraflow-request-id"])
        intent = record.decode(entries[0].data)
        assert isinstance(intent, record.Intent)
        met |= {row.exclusion for row in intent.policy}
    assert len(met) >= 8
    assert {200, 403} <= statuses


async def test_a_record_of_very_many_capabilities_holds_every_fact_too(tmp_path: Path) -> None:
    many = [sim(f"capability-{at:04d}-of-a-large-registry", tier="standard") for at in range(800)]
    async with plane_inside(tmp_path / "data", document(purpose("w", *many))) as inside:
        heard = await inside.chat({"model": "w", "messages": [{"role": "user", "content": "hello"}]})
        request_id = heard.headers["x-terraflow-request-id"]
        entries = await inside.parts.plane.store.find_entries("acme", "web", request_id)
        intent, bundle = record.decode(entries[0].data), inside.parts.plane.bundles.active()
        assert isinstance(intent, record.Intent) and isinstance(bundle, Bundle)
        verdicts, plan = again(intent, bundle)
        while True:
            wire = MemoryWire("GET", f"/v1/evidence/{request_id}".encode(), inside.headers({}), b"")
            await inside.parts.service.handle(wire)
            answer = json.loads(wire.answer)
            if all(part["inclusion_proof"] for part in answer["records"]):
                break
            await asyncio.sleep(0.02)
        key = verifier_key(origin("acme"), read_public_key(inside.folder.path / "keys" / "log.pub.pem"))
    assert len(verdicts) == 800 and plan == list(intent.plan)
    assert len(answer["decision"]["policy"]) == 800
    assert verify_answer(wire.answer, parse_key(key)).kinds == ("intent", "outcome")
    answer["decision"]["policy"][0]["healthy"] = False
    with pytest.raises(Refused):
        verify_answer(json.dumps(answer).encode(), parse_key(key))
