"""Steps 12 and 16: answers that must satisfy a schema, and answers that are given again from the response cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from terraflow.core.types import usd
from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, limit, purpose, remote, sim
from tests.harness.caller import CANARY, content_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.mouths import CHAT, INVOCATIONS, MESSAGES, MOUTHS, Mouth
from tests.harness.upstreams import COST, Upstreams, answer, completion, says
from tests.providers.vendor import Vendor
from trust.schema_work import ladder

SCHEMA: Json = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
GOOD, BAD = '{"sum": 5}', f'{{"sum": "{CANARY}"}}'
DOWN: Json = {"fail": "authentication"}
USED: Json = {"usage": {"input": 10, "output": 5}}
NAMES = [mouth.name for mouth in MOUTHS]
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def _says(*texts: str) -> list[Json]:
    return [{"text": said} | USED for said in texts]


def _asks_for(schema: Any) -> Json:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "total", "schema": schema}}}


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    rules: Json = {"json_schema": SCHEMA}
    asked: Json = {"requested_schema": True}
    once: Json = {"json_schema": SCHEMA, "repair": False}
    return launch_shared(
        bundle.document(
            purpose("checked", engine, output=rules, tools=["look_up"]),
            purpose("asked", engine, output=asked),
            *(purpose(f"repaired-{name}", sim(f"mends-{name}", *_says(BAD, GOOD)), output=rules) for name in NAMES),
            purpose("streamed", sim("mends-too", *_says(BAD, GOOD)), output=rules),
            purpose("blocked", sim("stays-bad", *_says(BAD)), output=rules),
            purpose("once", sim("bad-once", *_says(BAD, GOOD)), output=once),
            purpose("repair-fails", sim("then-down", *_says(BAD), DOWN), output=rules),
            purpose("poor", sim("dear-repair", *_says(BAD, GOOD)), output=rules),
            purpose(
                "recovered", sim("falls", {"fail": "authentication"}), sim("mends-3", *_says(BAD, GOOD)), output=rules
            ),
            purpose("cached", engine, response_cache={"ttl_s": 600}),
            purpose("cached-too", engine, response_cache={"ttl_s": 600}),
            purpose("short", engine, response_cache={"ttl_s": 1}),
            purpose("cached-checked", engine, response_cache={"ttl_s": 600}, output=rules),
            purpose(
                "compared",
                engine,
                sim("baseline", prices={"input": 10_000_000, "output": 20_000_000}),
                response_cache={"ttl_s": 600},
                baseline_capability="baseline",
            ),
            purpose("theirs", engine, tenant="umbra", response_cache={"ttl_s": 600}),
            budgets=[limit("workload", "poor", "hour", "0.0006")],
        ),
        health_faults_max=10_000,
    )


def blocked(site: Site, checks: Checks, response: Any, cost: int, capability: str = "engine") -> None:
    """A refusal of an answer that a capability gave."""
    code = Governed.VALIDATION_BLOCKED
    checks.refused(site.caller, response, code, detail="json_schema", cost=cost, capability=capability)


def _content(body: Json) -> Any:
    return body["choices"][0]["message"]["content"]


# The schema.


def test_an_answer_that_satisfies_the_contracts_schema(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(GOOD)]
    response = site.caller.ask("checked")
    assert _content(checks.answered(site.caller, response, capability="engine", cost=COST)) == GOOD
    asked = vendor.requests[-1].body["response_format"]
    assert asked == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert outcome["validation"] == ["json_schema"]


def test_an_answer_is_repaired_once(mouth: Mouth, site: Site, checks: Checks) -> None:
    response = site.caller.ask(f"repaired-{mouth.name}")
    code, capability = Governed.VALIDATION_REPAIRED, f"mends-{mouth.name}"
    body = checks.answered(site.caller, response, code, capability=capability, cost=2 * COST)
    said = {CHAT: _content, MESSAGES: lambda body: body["content"][0]["text"], INVOCATIONS: lambda body: body["output"]}
    assert said[mouth](body) == GOOD
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert [attempt.get("kind", "first") for attempt in outcome["attempts"]] == ["first", "repair"]


def test_the_model_sees_its_answer_when_it_is_asked_to_repair_it(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(f"not JSON {CANARY}")]
    response = site.caller.ask("checked")
    blocked(site, checks, response, 2 * COST)
    *_, said, asked = vendor.requests[-1].body["messages"]
    assert said == {"role": "assistant", "content": f"not JSON {CANARY}"}
    assert asked["role"] == "user"


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_stays_bad_is_not_released(stream: bool, site: Site, checks: Checks) -> None:
    blocked(site, checks, site.caller.ask("blocked", stream=stream), 2 * COST, "stays-bad")


def test_a_contract_without_repair(site: Site, checks: Checks) -> None:
    blocked(site, checks, site.caller.ask("once"), COST, "bad-once")


def test_a_repair_that_fails(site: Site, checks: Checks) -> None:
    blocked(site, checks, site.caller.ask("repair-fails"), COST, "then-down")


def test_a_repair_that_the_budget_cannot_pay(site: Site, checks: Checks) -> None:
    blocked(site, checks, site.caller.ask("poor"), COST, "dear-repair")


def test_a_checked_answer_is_collected_and_then_streamed(site: Site, checks: Checks) -> None:
    with site.caller.stream("streamed") as streamed:
        events = streamed.rest()
    headers = streamed.response.headers
    code = checks.raised.wire(200, headers, b"", streamed.response.url.path)
    assert code is Governed.VALIDATION_REPAIRED
    assert headers["x-terraflow-cost-usd"] == usd(2 * COST)
    assert content_of(events) == GOOD
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "stop"
    checks.outcome(site.caller, streamed.request_id, Governed.VALIDATION_REPAIRED, cost=2 * COST)


def test_the_first_of_two_codes_that_are_true(site: Site, checks: Checks) -> None:
    also = (Governed.PERMITTED, Governed.PROVIDER_ERROR_RECOVERED)
    response = site.caller.ask("recovered")
    checks.answered(site.caller, response, Governed.VALIDATION_REPAIRED, capability="mends-3", cost=2 * COST, also=also)


def test_an_answer_that_only_calls_tools_has_no_text_to_check(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [says(200, completion(None, finish_reason="tool_calls", tool_calls=[CALL]))]
    body = checks.answered(site.caller, site.caller.ask("checked", tools=[TOOL]), capability="engine", cost=COST)
    assert body["choices"][0]["message"]["tool_calls"] == [CALL]


def test_the_schema_that_the_caller_asks_for(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(GOOD)]
    checks.answered(site.caller, site.caller.ask("asked", **_asks_for(SCHEMA)), capability="engine", cost=COST)
    vendor.replies[:] = [answer(BAD)]
    response = site.caller.ask("asked", **_asks_for(SCHEMA))
    blocked(site, checks, response, 2 * COST)
    checks.answered(site.caller, site.caller.ask("asked"), capability="engine", cost=COST)


@every_mouth
@pytest.mark.parametrize(
    "schema",
    [
        {"type": CANARY},
        {"$ref": "https://example.org/schema"},
        {"pattern": "(?=x)"},
        {"pattern": "("},
        ladder("anyOf", 32),
    ],
    ids=["type", "reference", "look-around", "unclosed", "ladder"],
)
def test_a_schema_of_the_callers_that_is_none(schema: Json, site: Site, vendor: Vendor, checks: Checks) -> None:
    calls = len(vendor.requests)
    response = site.caller.ask("asked", **_asks_for(schema))
    checks.refused(site.caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="RESPONSE_SCHEMA_INVALID")
    assert len(vendor.requests) == calls


# The response cache.


def test_the_same_request_is_answered_from_the_cache(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Once.")]
    first = site.caller.ask("cached", "cache me")
    checks.answered(site.caller, first, capability="engine", cost=COST)
    calls = len(vendor.requests)
    response = site.caller.ask("cached", "cache me")
    body = checks.answered(site.caller, response, Governed.CACHE_HIT, capability="engine", cost=0, also=())
    assert _content(body) == "Once."
    assert response.headers["x-terraflow-savings-usd"] == usd(COST)
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert outcome["original_request_id"] == first.headers["x-terraflow-request-id"]
    assert outcome["savings_micro_usd"] == COST
    assert len(vendor.requests) == calls


def test_savings_are_counted_at_the_baselines_prices(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Once.")]
    site.caller.ask("compared", "compare me")
    response = site.caller.ask("compared", "compare me")
    checks.answered(site.caller, response, Governed.CACHE_HIT, capability="engine", cost=0, also=())
    assert response.headers["x-terraflow-savings-usd"] == usd(10 * COST)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "another text"},
        {"temperature": 0.5},
        {"max_tokens": 7},
        {"response_format": {"type": "json_object"}},
        {"model": "engine"},
        {"workload": "cached-too"},
        {"headers": headers_of(data_class="confidential")},
        {"seed": 1},
        {"user": "somebody"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_another_request(change: Json, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Fresh.")]
    base: Json = {"workload": "cached", "text": f"differs in {sorted(change)}"}
    assert site.caller.ask(**base).status_code == 200
    response = site.caller.ask(**base | change)
    checks.answered(site.caller, response, capability="engine", cost=COST)


def test_a_cache_never_crosses_tenants(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Ours.")]
    site.caller.ask("cached", "across")
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    vendor.replies[:] = [answer("Theirs.")]
    body = checks.answered(theirs, theirs.ask("theirs", "across"), capability="engine", cost=COST)
    assert _content(body) == "Theirs."


def test_a_cached_answer_expires(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Soon gone.")]
    first = site.caller.ask("short", "expire")
    checks.answered(site.caller, first, capability="engine", cost=COST)
    until(lambda: site.caller.ask("short", "expire").headers["x-terraflow-reason"] == Governed.PERMITTED)


def test_a_keyed_answer_is_kept_for_its_key_and_cached_no_longer_than_the_contract_says(
    site: Site, vendor: Vendor, checks: Checks
) -> None:
    vendor.replies[:] = [answer("Keyed.")]
    headers = headers_of(key="cached and keyed")
    first = site.caller.ask("short", "keyed", headers=headers)
    until(lambda: site.caller.ask("short", "keyed").headers["x-terraflow-reason"] == Governed.PERMITTED)
    checks.replayed(site.caller, site.caller.ask("short", "keyed", headers=headers), first)


def test_an_answer_that_was_blocked_is_never_cached(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(BAD)]
    response = site.caller.ask("cached-checked")
    blocked(site, checks, response, 2 * COST)
    vendor.replies[:] = [answer(GOOD)]
    checks.answered(site.caller, site.caller.ask("cached-checked"), capability="engine", cost=COST)
    again = site.caller.ask("cached-checked")
    checks.answered(site.caller, again, Governed.CACHE_HIT, capability="engine", cost=0, also=())


def test_a_cached_answer_is_streamed_to_whoever_asks_for_a_stream(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Both ways.")]
    site.caller.ask("cached", "stream me")
    with site.caller.stream("cached", "stream me") as streamed:
        events = streamed.rest()
    assert content_of(events) == "Both ways."
    assert checks.raised.wire(200, streamed.response.headers, b"", streamed.response.url.path) is Governed.CACHE_HIT
    checks.outcome(site.caller, streamed.request_id, Governed.CACHE_HIT, cost=0)


@every_mouth
def test_an_answer_whose_producer_is_no_longer_permitted_is_not_given(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    vendor = upstreams.open(answer("From the engine."))
    engine = remote("engine", vendor.port)
    cache: Json = {"response_cache": {"ttl_s": 600}}
    site = launch(bundle.document(purpose("plain", engine, sim("other"), **cache)))
    checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)
    hit = site.caller.ask()
    checks.answered(site.caller, hit, Governed.CACHE_HIT, capability="engine", cost=0, also=())
    site.folder.activate(bundle.document(purpose("plain", engine | {"enabled": False}, sim("other"), **cache)))
    site.plane.wait_for("bundle 2 is in force")
    checks.answered(site.caller, site.caller.ask(), capability="other")


def test_what_two_mouths_tell_a_model_in_other_words_is_not_the_same(site: Site, vendor: Vendor) -> None:
    """Chat sends a field that it does not know as it is; the mouth that has it says the same in OpenAI's words."""
    body: Json = {"max_tokens": 2_000, "messages": [{"role": "user", "content": "Think twice."}]}
    body["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
    sent = []
    for mouth in (CHAT, MESSAGES):
        calls = len(vendor.requests)
        assert site.caller.post(body, headers_of("cached"), mouth.path).status_code == 200
        sent += [request.body for request in vendor.requests[calls:]]
    assert [("thinking" in told, "reasoning_effort" in told) for told in sent] == [(True, False), (False, True)]


def test_an_answer_that_is_given_again_counts_nothing(site: Site, vendor: Vendor) -> None:
    used: Json = {"prompt_tokens": 10, "completion_tokens": 5}
    used["prompt_tokens_details"] = {"cached_tokens": 3, "text_tokens": 9}
    used["completion_tokens_details"] = {"reasoning_tokens": 1, "accepted_prediction_tokens": 2}
    vendor.replies[:] = [answer(usage=used)]
    first, hit = (site.caller.ask("cached", "counted once").json()["usage"] for _ in range(2))
    assert first["completion_tokens_details"]["accepted_prediction_tokens"] == 2
    counts = [hit.pop("prompt_tokens_details"), hit.pop("completion_tokens_details"), hit]
    assert {count for part in counts for count in part.values()} == {0}
