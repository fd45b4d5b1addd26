"""Faults that users report of other gateways, each on every mouth where it could be; this table says which test holds
what, those without a file are here.

| fault | tests |
| --- | --- |
| a call runs on after its caller left | `test_a_caller_that_leaves_at_any_event`, test_upstream |
| a provider's Retry-After is lost, retries are stacked | `test_a_provider_is_left_alone_for_as_long_as_it_asks` |
| a provider's "do not retry" is lost | test_upstream, the cases `in vain` |
| 400, 429 and 500 alike, with the provider's text | test_upstream `test_a_whole_answer_that_fails` |
| a 200 that holds an error is an answer, or a cut-off | test_upstream, the cases `200, an error` |
| fallbacks in a circle | `test_fallbacks_in_a_circle_end` |
| a cut-off stream ends in a clean end | `test_a_stream_that_is_cut_at_any_event` |
| silence while a model thinks | test_heartbeats, test_anthropic_client |
| 42 ms of Nagle | app/test_protocol, providers/test_endpoint |
| parallel tool calls merged or shifted | `test_parallel_tool_calls_…`, test_anthropic_upstream, test_tool_calls |
| the order of /v1/messages' events, thinking blocks | test_messages, test_block_order, test_as_the_vendor |
| the first delta lost | `test_the_first_and_the_last_delta_arrive` |
| strict and json_schema dropped | test_carried, providers/test_anthropic_request |
| a conversation breaks where another vendor goes on | test_block_order, test_openai_calls, test_anthropic_turns |
| fields lost on the way there | test_carried |
| fields lost on the way back | test_as_the_vendor, test_carried |
| usage shown to callers who did not ask | `test_usage_is_for_those_who_ask`, test_streams |
| a finished call keeps its slot | `test_a_slot_comes_back_however_a_call_ends` |
| one bad answer cools the only deployment | `test_bad_answers_do_not_cool_the_only_deployment` |
| refusals for money set off retries | harness/checks, on every refusal |
| check, then add | test_money `test_a_storm_never_spends_above_the_limit`, trust/money |
| limits count for each worker | test_life `test_one_plane_a_folder`, trust/money |
| limits hold after the fact | test_money `test_what_runs_is_reserved_at_its_worst_case` |
| rows that double | storage/test_requests, trust/plane_kills |
| windows that end in another zone | spend/test_budgets |
| a disconnect costs nothing | `test_a_caller_that_leaves_at_any_event`, test_streams |
| an estimate in the place of a true zero | `test_a_true_zero_is_no_estimate`, test_money |
| an unknown price is 0 | test_policy, the case `unpriced` |
| cached tokens counted twice or not at all | `test_cached_tokens_are_counted_once`, test_anthropic_upstream |
| fallbacks escape the budget | test_money `test_a_fallback_that_the_budget_cannot_pay_…` |
| fallbacks escape the contract's models | test_recovery `test_a_pin_has_no_fallback_…`, contracts/test_plan |
| surfaces that nobody scans | `test_no_surface_is_left_unscanned`, test_door, test_messages_sent |
| caches that cross tenants or ignore the format | `test_a_cache_is_one_tenants_and_one_formats` |
| revoked keys that live on | test_reads `test_a_revoked_key_ends_at_once` |
| keys in logs and errors | conftest `launcher`, after every test |
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote, sim
from tests.harness.caller import Streamed, until
from tests.harness.checks import Checks
from tests.harness.mouths import CHAT, INVOCATIONS, MESSAGES, MOUTHS, Mouth
from tests.harness.upstreams import COST, DONE, END, USED, Upstreams, answer, chunk, completion, flow, text
from tests.providers.vendor import Vendor, says

SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL: Json = {
    "type": "function",
    "function": {"name": "look_up", "description": "d", "parameters": SCHEMA, "strict": True},
}
FORM: Json = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
CARD = "4111 1111 1111 1111"
DOWN: Json = {"fail": "authentication"}
NAMES = [mouth.name for mouth in MOUTHS]
STREAM = (text("Cert"), text("ainly"), text("."), END, USED, DONE)


def _call(name: str, arguments: str) -> Json:
    return {"id": f"call_{name}", "type": "function", "function": {"name": "look_up", "arguments": arguments}}


CALLS = [_call("a", '{"a":1}'), _call("b", '{"a":2}')]


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(autouse=True)
def answering(vendor: Vendor) -> None:
    """The vendor answers, unless a test says otherwise."""
    vendor.replies[:] = [answer()]


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    cached: Json = {"response_cache": {"ttl_s": 600}}
    return launch_shared(
        bundle.document(
            purpose("plain", engine, tools=["look_up"]),
            purpose("internal", engine, tools=["look_up"], data_classes=["internal"]),
            purpose("buffered", engine, output={"stream": "buffered"}),
            purpose("cached", engine, **cached),
            purpose("theirs", engine, tenant="umbra", **cached),
            purpose("circle", sim("x", DOWN), sim("y", DOWN), fallback={"x": ["y"], "y": ["x"]}),
            *(purpose(f"recovers-{name}", sim(f"falls-{name}", DOWN), sim(f"spare-{name}")) for name in NAMES),
        ),
        health_faults_max=10_000,
        health_retry_after_max_s=0,
    )


def _chunks(streamed: Streamed) -> Iterator[Json]:
    return (json.loads(event) for event in streamed.rest() if event != "[DONE]")


def _said(mouth: Mouth, streamed: Streamed) -> tuple[str, dict[int, str], str | None]:
    """A stream's text, its tool calls' arguments in the order of their calls, and why it ended."""
    said, calls, ended = "", dict[int, str](), None
    for event in _chunks(streamed):
        if mouth is MESSAGES:
            delta = event.get("delta", {})
            said += delta.get("text", "")
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls[event["index"]] = ""
            if "partial_json" in delta:
                calls[event["index"]] += delta["partial_json"]
            ended = delta.get("stop_reason", ended)
            continue
        for choice in event["choices"]:
            said += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", ()):
                calls[part["index"]] = calls.get(part["index"], "") + part["function"].get("arguments", "")
            ended = choice["finish_reason"] or ended
    return said, calls, ended


# The upstream.


@every_mouth
def test_a_provider_is_left_alone_for_as_long_as_it_asks(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    busy = says(429, {"error": {"message": "slow down"}}, "Retry-After: 1")
    vendor = upstreams.open(busy, answer(), says(429, {"error": {}}, "Retry-After: 3000"))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    began = time.monotonic()
    code = Governed.PROVIDER_ERROR_RECOVERED
    checks.answered(site.caller, site.caller.ask(), code, capability="engine", cost=COST)
    assert 1.0 <= time.monotonic() - began < 3.0
    assert len(vendor.requests) == 2
    refused = site.caller.ask()
    code, capped = Governed.PROVIDER_ERROR_UNRECOVERED, "retry-after" in refused.headers
    checks.refused(site.caller, refused, code, detail="rate_limited", retry_after=capped)
    waiting = site.caller.ask()
    checks.refused(site.caller, waiting, Governed.TIER_NOT_AVAILABLE, retry_after=True)
    assert 50 <= int(waiting.headers["retry-after"]) <= 60
    assert len(vendor.requests) == 3


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_fallbacks_in_a_circle_end(stream: bool, site: Site, checks: Checks) -> None:
    response = site.caller.ask("circle", stream=stream)
    checks.refused(site.caller, response, Governed.PROVIDER_ERROR_UNRECOVERED, detail="authentication")
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert [attempt["capability"] for attempt in outcome["attempts"]] == ["x", "y"]


@every_mouth
def test_another_route_answers(mouth: Mouth, site: Site, checks: Checks) -> None:
    response = site.caller.ask(f"recovers-{mouth.name}")
    checks.answered(site.caller, response, Governed.PROVIDER_ERROR_RECOVERED, capability=f"spare-{mouth.name}")


@every_vendor_mouth
@pytest.mark.parametrize("end", [False, True], ids=["dropped", "ended"])
@pytest.mark.parametrize("after", range(1, len(STREAM)))
def test_a_stream_that_is_cut_at_any_event(after: int, end: bool, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(*STREAM[:after], end=end)]
    with site.caller.stream("plain") as streamed:
        events = streamed.rest()
    outcome = checks.broken(site.caller, streamed, events, Governed.PROVIDER_ERROR_UNRECOVERED, "cut_off")
    assert outcome["cost_micro_usd"] > 0


@every_vendor_mouth
@pytest.mark.parametrize("after", range(1, 5))
def test_a_caller_that_leaves_at_any_event(after: int, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(*(text(f"{n} ") for n in range(6)), 60.0)]
    left = len(vendor.closed_at)
    with site.caller.stream("plain") as streamed:
        events = streamed.events()
        for _ in range(after):
            next(events)
    until(lambda: len(vendor.closed_at) > left)
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.CANCELLED, detail="caller_left")
    assert outcome["cost_micro_usd"] > 0


# Limits.


@every_mouth
def test_bad_answers_do_not_cool_the_only_deployment(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    bad = says(200, {"error": {"message": "no", "type": "server_error"}})
    vendor = upstreams.open(bad, bad, bad, answer())
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    failed = site.caller.ask()
    checks.refused(site.caller, failed, Governed.PROVIDER_ERROR_UNRECOVERED, detail="server_error")
    for _ in range(5):
        checks.answered(site.caller, site.caller.ask(), capability="engine", cost=COST)


@every_mouth
def test_a_slot_comes_back_however_a_call_ends(mouth: Mouth, launch: Launch, upstreams: Upstreams) -> None:
    ends = (
        says(400, {"error": {"message": "no"}}),
        says(200, b"not json"),
        says(200, completion("x", finish_reason="content_filter")),
    )
    vendor = upstreams.open(*ends, answer())
    engine = remote("engine", vendor.port, in_flight_max=1)
    site = launch(bundle.document(purpose("plain", engine)), running_max=1, waiting_max=1, health_faults_max=100)
    assert [site.caller.ask().status_code for _ in range(4)] == [400, 503, 400, 200]
    if mouth is INVOCATIONS:
        return
    for reply in (flow(*STREAM), flow(*STREAM[:2]), flow(*STREAM[:2], end=False)):
        vendor.replies[:] = [reply]
        with site.caller.stream("plain") as streamed:
            streamed.rest()
    vendor.replies[:] = [answer()]
    assert site.caller.ask().status_code == 200


# Translation.


@every_mouth
def test_parallel_tool_calls_of_a_whole_answer_stay_apart(
    mouth: Mouth, site: Site, vendor: Vendor, checks: Checks
) -> None:
    vendor.replies[:] = [says(200, completion(None, finish_reason="tool_calls", tool_calls=CALLS))]
    response = site.caller.ask("plain", tools=[TOOL])
    body = checks.answered(site.caller, response, capability="engine", cost=COST)
    if mouth is MESSAGES:
        used = [
            {"type": "tool_use", "id": f"call_{x}", "name": "look_up", "input": {"a": n}}
            for n, x in ((1, "a"), (2, "b"))
        ]
        assert body["content"] == used
        assert body["stop_reason"] == "tool_use"
        return
    said = body["choices"][0]["message"] if mouth is CHAT else body
    assert said["tool_calls"] == CALLS


@every_vendor_mouth
@pytest.mark.parametrize("first", [0, 1], ids=["from 0", "from 1"])
@pytest.mark.parametrize("whole", [True, False], ids=["at once", "in pieces"])
def test_parallel_tool_calls_of_a_stream_stay_apart(
    whole: bool, first: int, vendor_mouth: Mouth, site: Site, vendor: Vendor
) -> None:
    def piece(at: int, **fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": first + at} | fields]})

    if whole:
        pieces = [chunk({"tool_calls": [{"index": first + at} | call for at, call in enumerate(CALLS)]})]
    else:
        begun = [
            piece(at, **call | {"function": {"name": "look_up", "arguments": ""}}) for at, call in enumerate(CALLS)
        ]
        pieces = [*begun, *(piece(at, function={"arguments": p}) for p in ('{"a"', ":") for at in (1, 0))]
        pieces += [piece(0, function={"arguments": "1}"}), piece(1, function={"arguments": "2}"})]
    vendor.replies[:] = [flow(text("Let me see."), *pieces, chunk({}, "tool_calls"), USED, DONE)]
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        said, calls, ended = _said(vendor_mouth, streamed)
    assert said == "Let me see."
    assert [calls[at] for at in sorted(calls)] == ['{"a":1}', '{"a":2}']
    assert ended == ("tool_use" if vendor_mouth is MESSAGES else "tool_calls")


@every_vendor_mouth
@pytest.mark.parametrize("together", [True, False])
def test_parallel_tool_calls_of_one_index_stay_apart(
    together: bool, vendor_mouth: Mouth, site: Site, vendor: Vendor
) -> None:
    first, second = ({"index": 0} | call for call in CALLS)
    begun = {**second, "function": {"name": "look_up", "arguments": '{"a":'}}
    rest = {"index": 0, "function": {"arguments": "2}"}}
    sent = [[first, begun], [rest]] if together else [[first], [begun], [rest]]
    pieces = [chunk({"tool_calls": calls}) for calls in sent]
    vendor.replies[:] = [flow(*pieces, chunk({}, "tool_calls"), USED, DONE)]
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        _, calls, _ = _said(vendor_mouth, streamed)
    assert calls == {0: '{"a":1}', 1: '{"a":2}'}


@every_vendor_mouth
@pytest.mark.parametrize(
    "pieces",
    [
        (chunk({"role": "assistant", "content": "Cert"}), chunk({"content": "ainly."}, "stop")),
        (chunk({"role": "assistant", "content": "Certainly."}, "stop"),),
        (chunk({"role": "assistant", "content": ""}), text("Certainly."), END),
    ],
    ids=["with the role and the end", "all in one", "after the role"],
)
def test_the_first_and_the_last_delta_arrive(
    pieces: tuple[bytes, ...], vendor_mouth: Mouth, site: Site, vendor: Vendor
) -> None:
    vendor.replies[:] = [flow(*pieces, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        said, _, ended = _said(vendor_mouth, streamed)
    assert (said, ended) == ("Certainly.", "end_turn" if vendor_mouth is MESSAGES else "stop")


@pytest.mark.parametrize("workload", ["plain", "buffered", "cached"])
def test_usage_is_for_those_who_ask(workload: str, site: Site, vendor: Vendor) -> None:
    assert site.caller.ask(workload, "whose usage").status_code == 200
    vendor.replies[:] = [flow(*STREAM)] if workload == "plain" else [answer()]
    with site.caller.stream(workload, "whose usage") as streamed:
        chunks = list(_chunks(streamed))
    assert all(made["choices"] and "usage" not in made for made in chunks)
    with site.caller.stream(workload, "whose usage", stream_options={"include_usage": True}) as streamed:
        *_, last = _chunks(streamed)
    used = 0 if workload == "cached" else 15
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], used)


# Money.


@every_mouth
def test_cached_tokens_are_counted_once(mouth: Mouth, site: Site, vendor: Vendor, checks: Checks) -> None:
    details = {"cached_tokens": 6, "cache_write_tokens": 3}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details}
    vendor.replies[:] = [answer(usage=usage)]
    body = checks.answered(site.caller, site.caller.ask("plain"), capability="engine", cost=COST + 3)
    shown = body["usage"]
    if mouth is MESSAGES:
        counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert [shown[count] for count in counts] == [1, 6, 3]
    elif mouth is CHAT:
        assert (shown["prompt_tokens"], shown["prompt_tokens_details"]) == (10, details | {"audio_tokens": 0})
    else:
        counts = ("input_tokens", "cached_input_tokens", "cache_write_tokens")
        assert [shown[count] for count in counts] == [10, 6, 3]


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_a_true_zero_is_no_estimate(stream: bool, mouth: Mouth, site: Site, vendor: Vendor, checks: Checks) -> None:
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    vendor.replies[:] = [flow(*STREAM[:4], chunk({}, choices=[], usage=zero), DONE) if stream else answer(usage=zero)]
    if not stream or mouth is INVOCATIONS:
        checks.answered(site.caller, site.caller.ask("plain"), capability="engine", cost=0)
        return
    with site.caller.stream("plain") as streamed:
        streamed.rest()
    checks.outcome(site.caller, streamed.request_id, Governed.PERMITTED, cost=0)


# Privacy.

SPLIT = "\u200b".join(CARD)
OFFERED: Json = {"type": "function", "function": {"name": "look_up", "description": f"card {CARD}"}}
SHOWN: Json = {"type": "object", "properties": {"a": {"type": "string", "description": CARD}}}


@every_mouth
@pytest.mark.parametrize(
    "fields",
    [
        {"text": SPLIT},
        {"tools": [OFFERED]},
        {"tools": [{"type": "function", "function": {"name": "look_up", "parameters": SHOWN}}]},
        {
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "", "tool_calls": [_call("a", json.dumps({"a": CARD}))]},
                {"role": "tool", "tool_call_id": "call_a", "content": "done"},
            ]
        },
        {
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "", "tool_calls": [_call("a", "{}")]},
                {"role": "tool", "tool_call_id": "call_a", "content": CARD},
            ]
        },
        {"stop": [CARD]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SHOWN}}},
    ],
    ids=["zero-width", "description", "parameters", "arguments", "result", "stop", "schema"],
)
def test_no_surface_is_left_unscanned(fields: Json, site: Site, vendor: Vendor, checks: Checks) -> None:
    calls = len(vendor.requests)
    response = site.caller.ask("internal", **fields)
    checks.refused(site.caller, response, Governed.DATA_CLASS_NOT_PERMITTED, detail="class")
    assert len(vendor.requests) == calls


@every_mouth
def test_a_cache_is_one_tenants_and_one_formats(mouth: Mouth, site: Site, vendor: Vendor, checks: Checks) -> None:
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    once: Json = {"text": f"the same of {mouth.name}"}
    answered = checks.answered
    answered(site.caller, site.caller.ask("cached", **once), capability="engine", cost=COST)
    hit = site.caller.ask("cached", **once)
    answered(site.caller, hit, Governed.CACHE_HIT, capability="engine", cost=0, also=())
    answered(theirs, theirs.ask("theirs", **once), capability="engine", cost=COST)
    vendor.replies[:] = [answer('{"a": 1}')]
    answered(site.caller, site.caller.ask("cached", **once, response_format=FORM), capability="engine", cost=COST)
