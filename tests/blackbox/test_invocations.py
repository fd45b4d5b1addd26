"""`POST /v1/invocations`: what the plane's own shape says in its body, and what it answers. What it shares with the
other shapes, other files ask of every mouth."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import CANARY, Caller, headers_of
from tests.harness.checks import Checks
from tests.harness.mouths import INVOCATIONS
from tests.harness.upstreams import COST, Upstreams, answer
from tests.providers.vendor import Vendor

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Pune"}'}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(autouse=True)
def invocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every caller speaks in this shape."""
    monkeypatch.setattr(Caller, "mouth", INVOCATIONS)


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("plain", engine, sim("other"), aliases={"quick": "other"}, tools=["weather"]),
            purpose("strict", engine, output={"requested_schema": True}),
            purpose("low", engine, data_classes=["public"]),
        )
    )


def invoke(site: Site, body: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
    if isinstance(body, dict):
        body = {"input": f"Hello {CANARY}"} | body
    return site.caller.post(body if isinstance(body, bytes) else json.dumps(body).encode(), headers, "/invocations")


def decision(site: Site, response: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    return found


def test_an_input_is_a_users_message(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Certainly.")]
    response = invoke(site, {"max_output_tokens": 40, "temperature": 0.5})
    body = checks.answered(site.caller, response, capability="engine", cost=COST)
    assert set(body) == {"output", "finish_reason", "usage", "terraflow"}
    assert (body["output"], body["finish_reason"]) == ("Certainly.", "stop")
    assert body["usage"] == {
        "input_tokens": 10,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 5,
        "reasoning_tokens": 0,
    }
    sent = vendor.requests[-1].body
    assert sent["messages"] == [{"role": "user", "content": f"Hello {CANARY}"}]
    assert sent["temperature"] == 0.5
    assert decision(site, response)["mouth"] == "invocations"


def test_everything_is_declared_in_the_body(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer()]
    said = {
        "workload": "plain",
        "data_class": "internal",
        "sensitive_types": ["pii", "phi"],
        "deadline_ms": 12_345,
        "capability": "engine",
        "run": {"id": "nightly:7", "budget_usd": "2.50"},
    }
    response = invoke(site, said)
    checks.answered(site.caller, response, capability="engine", cost=COST)
    found = decision(site, response)
    assert (found["workload"], found["run"]) == ("plain", {"id": "nightly:7", "budget_micro_usd": 2_500_000})
    request = found["request"]
    assert (request["declared_class"], request["declared_types"]) == ("internal", ["phi", "pii"])
    assert (request["deadline_ms"], request["pinned"]) == (12_345, "engine")


def test_headers_count_where_the_body_says_nothing(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer()]
    headers = headers_of("strict", data_class="public", deadline_ms=20_000, run="r1", run_budget="0", types="pci")
    response = invoke(site, {"data_class": "public", "run": {"id": "r1"}}, headers)
    checks.answered(site.caller, response, capability="engine", cost=COST)
    found = decision(site, response)
    assert (found["workload"], found["run"]) == ("strict", {"id": "r1", "budget_micro_usd": 0})
    request = found["request"]
    assert (request["declared_class"], request["declared_types"]) == ("public", ["pci"])
    assert request["deadline_ms"] == 20_000


@pytest.mark.parametrize(
    ("said", "headers", "field"),
    [
        ({"workload": "plain"}, headers_of("strict"), "workload"),
        ({"data_class": "internal"}, headers_of(data_class="public"), "data_class"),
        ({"sensitive_types": ["pii"]}, headers_of(types="pci"), "sensitive_types"),
        ({"deadline_ms": 1}, headers_of(deadline_ms=2), "deadline_ms"),
        ({"run": {"id": "a"}}, headers_of(run="b"), "run.id"),
        ({"run": {"id": "a", "budget_usd": "0"}}, headers_of(run="a", run_budget="1"), "run.budget_usd"),
    ],
)
def test_body_and_headers_contradict_each_other(
    said: dict[str, Any], headers: dict[str, str], field: str, site: Site, checks: Checks
) -> None:
    checks.ungoverned(invoke(site, said, headers), ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["text"]}, "input"),
        ({"messages": [{"role": "user", "content": CANARY}]}, "input"),
        ({"input": None, "messages": []}, "messages"),
        ({"input": None, "messages": [{"role": CANARY, "content": "x"}]}, "messages[0].role"),
        ({"input": None, "messages": [{"role": "user"}]}, "messages[0].content"),
        ({"model": "engine"}, "body"),
        ({"stream": True}, "body"),
        ({"stream": False}, "body"),
        ({"workload": "no spaces"}, "workload"),
        ({"workload": 7}, "workload"),
        ({"capability": ""}, "capability"),
        ({"output_schema": "object"}, "output_schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"run": {}}, "run.id"),
        ({"run": {"id": "a b"}}, "run.id"),
        ({"run": "r1"}, "run"),
        ({"run": {"id": "a", "budget_usd": 2.5}}, "run.budget_usd"),
        ({"run": {"id": "a", "budget_usd": "-1"}}, "run.budget_usd"),
        ({"run": {"id": "a", "limit": 1}}, "run"),
    ],
)
def test_what_is_no_invocation(said: Any, field: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(invoke(site, said), ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize("workload", ["plain", "strict"])
@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"pattern": "("}], ids=["type", "pattern"])
def test_a_schema_that_is_none_is_refused_under_every_contract(
    schema: dict[str, Any], workload: str, site: Site, vendor: Vendor, checks: Checks
) -> None:
    calls = len(vendor.requests)
    response = invoke(site, {"workload": workload, "output_schema": schema})
    checks.refused(site.caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="RESPONSE_SCHEMA_INVALID")
    assert len(vendor.requests) == calls


def test_an_unknown_field_is_answered_with_those_that_there_are(site: Site, checks: Checks) -> None:
    problem = checks.ungoverned(invoke(site, {CANARY: 1}), ModelApi.INVALID_REQUEST, field="body")
    assert problem["rule"].startswith("must hold nothing but capability, data_class, deadline_ms, input, ")
    inner = checks.ungoverned(invoke(site, {"run": {"id": "a", CANARY: 1}}), ModelApi.INVALID_REQUEST, field="run")
    assert inner["rule"] == "must hold no unknown field"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"data_class": CANARY}, ModelApi.INVALID_DATA_CLASS),
        ({"data_class": 1}, ModelApi.INVALID_DATA_CLASS),
        ({"data_class": ["public"]}, ModelApi.INVALID_DATA_CLASS),
        ({"deadline_ms": 0}, ModelApi.INVALID_DEADLINE),
        ({"deadline_ms": 1.5}, ModelApi.INVALID_DEADLINE),
        ({"deadline_ms": True}, ModelApi.INVALID_DEADLINE),
        ({"deadline_ms": "100"}, ModelApi.INVALID_DEADLINE),
        ({"deadline_ms": 10_000_000_000}, ModelApi.INVALID_DEADLINE),
        ({"sensitive_types": "pii"}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"sensitive_types": ["pii", CANARY]}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"sensitive_types": [["pii"]]}, ModelApi.INVALID_SENSITIVE_TYPE),
    ],
)
def test_what_is_no_declaration(said: Any, code: ModelApi, site: Site, checks: Checks) -> None:
    checks.ungoverned(invoke(site, said), code)


def test_a_declared_class_is_held_against_the_contract(site: Site, checks: Checks) -> None:
    response = invoke(site, {"workload": "low", "data_class": "internal"})
    checks.refused(site.caller, response, Governed.DATA_CLASS_NOT_PERMITTED, detail="class")


@pytest.mark.parametrize("pin", ["other", "quick"])
def test_a_capability_is_pinned(pin: str, site: Site, checks: Checks) -> None:
    checks.answered(site.caller, invoke(site, {"capability": pin}), capability="other")


@pytest.mark.parametrize("pin", ["plain", "gpt-4o", CANARY])
def test_a_pin_that_names_nothing_is_refused(pin: str, site: Site, checks: Checks) -> None:
    response = invoke(site, {"capability": pin})
    checks.refused(site.caller, response, Governed.CAPABILITY_NOT_IN_CONTRACT, detail="pinned")


def test_a_pin_of_another_contracts_capability(site: Site, checks: Checks) -> None:
    response = invoke(site, {"workload": "strict", "capability": "other"})
    facts = checks.refused(site.caller, response, Governed.CAPABILITY_NOT_IN_CONTRACT, capability="other")
    code = Governed.CAPABILITY_NOT_IN_CONTRACT
    assert facts["details"]["excluded"] == {"other": {"reason_code": code, "detail": ""}}


@pytest.mark.parametrize("workload", ["plain", "strict"])
def test_an_output_of_a_schema_is_its_value(workload: str, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer('{"total": 12, "rate": 1.10}')]
    response = invoke(site, {"workload": workload, "output_schema": SCHEMA})
    checks.answered(site.caller, response, capability="engine", cost=COST)
    assert b'"output":{"total": 12, "rate": 1.10}' in response.content
    sent = vendor.requests[-1].body["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}


def test_an_output_that_is_checked_and_fails(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer('{"total": "none"}')]
    response = invoke(site, {"workload": "strict", "output_schema": SCHEMA})
    checks.refused(
        site.caller, response, Governed.VALIDATION_BLOCKED, detail="json_schema", cost=2 * COST, capability="engine"
    )


def test_an_output_that_is_not_checked_is_text_where_it_is_no_json(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("I cannot say.")]
    response = invoke(site, {"output_schema": SCHEMA})
    assert checks.answered(site.caller, response, capability="engine", cost=COST)["output"] == "I cannot say."
    vendor.replies[:] = [answer('{"total": 3}')]
    without = invoke(site, {})
    assert checks.answered(site.caller, without, capability="engine", cost=COST)["output"] == '{"total": 3}'


def test_a_replay_has_the_same_output(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer('{"total": 3}')]
    said, headers = {"output_schema": SCHEMA}, headers_of(key="structured")
    first = invoke(site, said, headers)
    assert first.json()["output"] == {"total": 3}
    again = checks.replayed(site.caller, invoke(site, said, headers), first)
    assert (again["output"], again["usage"]) == ({"total": 3}, first.json()["usage"])
    other = invoke(site, said | {"data_class": "internal"}, headers)
    checks.refused(site.caller, other, Governed.IDEMPOTENCY_CONFLICT)


def test_tools_are_offered_and_called(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(None, finish_reason="tool_calls", tool_calls=[CALL])]
    response = invoke(site, {"tools": [TOOL], "tool_choice": "auto"})
    body = checks.answered(site.caller, response, capability="engine", cost=COST)
    assert (body["output"], body["finish_reason"], body["tool_calls"]) == (None, "tool_calls", [CALL])
    refused = invoke(site, {"tools": [TOOL | {"function": {"name": "launch"}}]})
    checks.refused(site.caller, refused, Governed.TOOL_NOT_PERMITTED)


def test_a_conversation_with_an_image(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer()]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [image]}]
    response = invoke(site, {"input": None, "messages": messages})
    checks.answered(site.caller, response, capability="engine", cost=COST)
    assert vendor.requests[-1].body["messages"] == messages
    assert decision(site, response)["request"]["scan"]["attachments"] is True
