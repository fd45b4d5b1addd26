"""Streams: they flow chunk by chunk, end in an error event or in `[DONE]` and never in both, and cost what was used."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from terraflow.core.reasons import Governed, reason
from terraflow.core.types import usd
from tests.blackbox.conftest import Launch, Site, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import CANARY, Streamed, body_of, content_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, DONE, END, USED, Gate, Upstreams, answer, chunk, flow, text
from tests.providers.vendor import Vendor, says

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
FLOWING_HEADERS = {"x-terraflow-request-id", "x-terraflow-capability"}


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(flow(text("Certainly."), END, USED, DONE))


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("plain", engine, tools=["look_up"]),
            purpose("buffered", engine, output={"stream": "buffered"}),
            purpose("spare", remote("first", vendor.port), sim("second")),
            purpose("cached", engine, response_cache={"ttl_s": 600}),
            purpose("several", sim("choices", {"text": "Yes.", "chunks": 2})),
        ),
        health_faults_max=10_000,
    )


def flowing(streamed: Streamed) -> None:
    """What the head of a flowing stream carries, and what it does not know yet."""
    response = streamed.response
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert {name for name in response.headers if name.startswith("x-terraflow")} == FLOWING_HEADERS
    assert {"retry-after", "x-should-retry"}.isdisjoint(response.headers)


def broken(checks: Checks, site: Site, streamed: Streamed, events: list[str], code: Governed, detail: str) -> Any:
    """A stream that ended in an error event; gives its recorded outcome."""
    flowing(streamed)
    assert "[DONE]" not in events
    last = json.loads(events[-1])
    assert set(last) == {"error", "terraflow"}
    assert last["error"]["code"] == last["terraflow"]["reason_code"] == code
    assert last["error"]["message"].startswith(reason(code).meaning)
    assert last["terraflow"]["request_id"] == streamed.request_id
    assert CANARY not in events[-1]
    outcome = checks.outcome(site.caller, streamed.request_id, code, detail=detail)
    assert last["terraflow"]["cost_usd"] == usd(outcome.get("cost_micro_usd", 0))
    return outcome


def test_chunks_pass_one_by_one(site: Site, vendor: Vendor, checks: Checks) -> None:
    gate = Gate()
    vendor.replies[:] = [flow(text("Certain"), gate, text("ly."), END, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        flowing(streamed)
        first = json.loads(next(streamed.events()))
        assert first["choices"][0]["delta"]["content"] == "Certain"
        gate.open()
        rest = streamed.rest()
    assert content_of(rest) == "ly."
    assert rest[-1] == "[DONE]"
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.PERMITTED, cost=COST)
    assert outcome["capability"] == "engine"
    assert outcome["usage"] == {"input": 10, "output": 5}
    assert "estimated" not in outcome["attempts"][0]


def test_the_chunks_are_ours_and_alike(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(b": comment\n\n", text("a"), b"event: x\nid: 5\n" + text("b"), END, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        events = streamed.rest()
    chunks = [json.loads(event) for event in events[:-1]]
    assert content_of(events) == "ab"
    for made in chunks:
        assert made["object"] == "chat.completion.chunk"
        assert made["id"] == "chatcmpl-" + streamed.request_id.removeprefix("req_")
        assert made["model"] == "engine"
        assert "usage" not in made
    assert [c["finish_reason"] for made in chunks for c in made["choices"]] == [None, None, "stop"]


def test_usage_is_shown_to_callers_that_ask(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("a"), END, USED, DONE)]
    with site.caller.stream("plain", stream_options={"include_usage": True}) as streamed:
        events = streamed.rest()
    *chunks, usage = [json.loads(event) for event in events[:-1]]
    assert all(made["usage"] is None for made in chunks)
    assert usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (10, 5)


def test_the_record_has_the_digest_of_the_bytes_that_were_sent(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("a"), text("b"), END, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        events = streamed.rest()
    sent = "".join(f"data: {event}\n\n" for event in events[:-1]).encode()
    answer = site.caller.evidence(streamed.request_id)["outcome"]["answer"]
    assert answer == {"bytes": len(sent), "digest": hashlib.sha256(sent).hexdigest()}


def test_parallel_tool_calls_stay_apart(site: Site, vendor: Vendor) -> None:
    def call(index: int, **fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": index} | fields]})

    pieces = [
        call(0, id="call_a", type="function", function={"name": "look_up", "arguments": ""}),
        call(1, id="call_b", type="function", function={"name": "look_up", "arguments": ""}),
        call(0, function={"arguments": '{"a":'}),
        call(1, function={"arguments": '{"b":'}),
        call(1, function={"arguments": "2}"}),
        call(0, function={"arguments": "1}"}),
    ]
    vendor.replies[:] = [flow(*pieces, chunk({}, "tool_calls"), USED, DONE)]
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        events = streamed.rest()
    arguments = {0: "", 1: ""}
    for event in events[:-1]:
        for part in json.loads(event)["choices"][0]["delta"].get("tool_calls", ()):
            arguments[part["index"]] += part["function"].get("arguments", "")
    assert arguments == {0: '{"a":1}', 1: '{"b":2}'}


def test_several_choices_in_one_stream(site: Site) -> None:
    with site.caller.stream("several", n=3) as streamed:
        events = streamed.rest()
    texts = ["", "", ""]
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == ["Yes."] * 3


def test_a_stream_that_another_capability_begins(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [says(401, {})]
    with site.caller.stream("spare") as streamed:
        flowing(streamed)
        assert streamed.rest()[-1] == "[DONE]"
    assert streamed.response.headers["x-terraflow-capability"] == "second"
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.PROVIDER_ERROR_RECOVERED)
    assert outcome["reasons"] == [Governed.PROVIDER_ERROR_RECOVERED, Governed.PERMITTED]


def test_a_buffered_stream_carries_its_reason(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer()]
    with site.caller.stream("buffered", stream_options={"include_usage": True}) as streamed:
        events = streamed.rest()
    headers = streamed.response.headers
    assert headers["x-terraflow-reason"] == Governed.PERMITTED
    assert headers["x-terraflow-cost-usd"] == usd(COST)
    assert content_of(events) == "Certainly."
    assert json.loads(events[-2])["usage"]["total_tokens"] == 15
    checks.outcome(site.caller, streamed.request_id, Governed.PERMITTED, cost=COST)


def test_a_refusal_before_the_first_byte_is_a_plain_response(site: Site, checks: Checks) -> None:
    response = site.caller.ask("plain", stream=True, tools=[{"type": "function", "function": {"name": "other"}}])
    checks.refused(site.caller, response, Governed.TOOL_NOT_PERMITTED)


# Ends that are none.

ERROR = (
    b"data: " + json.dumps({"error": {"message": CANARY, "type": "server_error", "code": CANARY}}).encode() + b"\n\n"
)


@pytest.mark.parametrize(
    ("pieces", "end", "detail"),
    [
        ((text("Cert"),), False, "cut_off"),
        ((text("Cert"),), True, "cut_off"),
        ((text("Cert"), END, USED), True, "cut_off"),
        ((text("Cert"), DONE), True, "cut_off"),
        ((text("Cert"), f"data: {CANARY}\n\n".encode()), True, "malformed"),
        ((text("Cert"), chunk({"content": [CANARY]})), True, "malformed"),
        ((text("Cert"), b"data: " + b"[" * 100_000 + b"\n\n"), True, "malformed"),
        ((text("Cert"), ERROR), True, "server_error"),
        ((text("Cert"), END, text(CANARY), DONE), True, "malformed"),
        ((text("Cert"), chunk({}, "abort"), DONE), True, "cut_off"),
    ],
    ids=["dropped", "ended", "no mark", "mark alone", "no JSON", "shape", "deep", "error", "text after", "abort"],
)
def test_a_stream_that_its_vendor_breaks_off(
    pieces: tuple[bytes, ...], end: bool, detail: str, site: Site, vendor: Vendor, checks: Checks
) -> None:
    vendor.replies[:] = [flow(*pieces, end=end)]
    calls = len(vendor.requests)
    with site.caller.stream("plain") as streamed:
        events = streamed.rest()
    assert content_of(events[:-1]) == "Cert"
    outcome = broken(checks, site, streamed, events, Governed.PROVIDER_ERROR_UNRECOVERED, detail)
    [attempt] = outcome["attempts"]
    counted = USED not in pieces
    assert attempt.get("estimated", False) is counted
    assert attempt["failure"] == detail
    reserved = site.caller.evidence(streamed.request_id)["decision"]["reserved_micro_usd"]
    assert 0 < attempt["cost_micro_usd"] < reserved
    assert len(vendor.requests) == calls + 1, "an answer that has begun is never begun again"


@every_vendor_mouth
def test_a_stream_that_falls_silent_until_the_deadline(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Cert"), 60.0)]
    left = len(vendor.closed_at)
    with site.caller.stream("plain", headers=headers_of(deadline_ms=300)) as streamed:
        events = streamed.rest()
    flowing(streamed)
    outcome = checks.broken(site.caller, streamed, events, Governed.DEADLINE_EXPIRED, "streaming")
    assert outcome["attempts"][0]["estimated"] is True
    until(lambda: len(vendor.closed_at) > left)


def test_a_stream_without_a_count_is_given_again_with_ours(site: Site, vendor: Vendor) -> None:
    def told() -> Any:
        with site.caller.stream("cached", headers=headers_of(key="uncounted"), **counted) as streamed:
            events = [json.loads(event) for event in streamed.rest() if event.startswith("{")]
            return streamed.response.headers, [event["usage"] for event in events if event.get("usage")][-1]

    counted = {"stream_options": {"include_usage": True}}
    vendor.replies[:] = [flow(text("Certainly."), END, DONE)]
    (_, said), (again, repeated) = told(), told()
    assert again["x-terraflow-idempotent-replay"] == "true"
    assert repeated == said
    assert 3 in said.values(), "ten characters, four a token"
    with site.caller.stream("cached", **counted) as streamed:
        assert float(streamed.response.headers["x-terraflow-savings-usd"]) > 0


# Callers that leave.


def test_the_vendor_is_left_when_the_caller_leaves(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certain"), text("ly "), 60.0, text("not."), END, USED, DONE)]
    left = len(vendor.closed_at)
    with site.caller.stream("plain") as streamed:
        events = streamed.events()
        assert content_of([next(events), next(events)]) == "Certainly "
    until(lambda: len(vendor.closed_at) > left)
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.CANCELLED, detail="caller_left")
    [attempt] = outcome["attempts"]
    assert (attempt["failure"], attempt["estimated"]) == ("broken_off", True)
    assert attempt["usage"]["output"] == 3, "ten characters, four a token"
    assert outcome["cost_micro_usd"] == attempt["usage"]["input"] + 2 * 3


def test_the_vendors_figure_counts_if_it_came_before_the_caller_left(
    site: Site, vendor: Vendor, checks: Checks
) -> None:
    vendor.replies[:] = [
        flow(chunk({"content": "Certainly."}, usage={"prompt_tokens": 10, "completion_tokens": 3}), 60.0)
    ]
    with site.caller.stream("plain") as streamed:
        next(streamed.events())
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.CANCELLED, cost=10 + 2 * 3)
    assert "estimated" not in outcome["attempts"][0]


def test_a_caller_that_leaves_before_the_first_chunk(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(60.0)]
    calls, left = len(vendor.requests), len(vendor.closed_at)
    request_id = site.caller.leave(lambda: len(vendor.requests) > calls, stream=True)
    until(lambda: len(vendor.closed_at) > left)
    reserved = site.caller.evidence(request_id)["decision"]["reserved_micro_usd"]
    checks.outcome(site.caller, request_id, Governed.CANCELLED, cost=reserved, detail="caller_left")


def test_a_caller_that_reads_nothing_holds_nothing_but_its_own_stream(
    site: Site, vendor: Vendor, checks: Checks
) -> None:
    piece = text("x" * 60_000)
    vendor.replies[:] = [flow(*[piece] * 400, END, USED, DONE)]
    with site.caller.stream("plain") as stuck:
        next(stuck.events())
        vendor.replies[:] = [flow(text("a"), END, USED, DONE)]
        with site.caller.stream("plain") as other:
            assert other.rest()[-1] == "[DONE]"
    checks.outcome(site.caller, stuck.request_id, Governed.CANCELLED)


def test_slots_and_places_come_back_after_many_left(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    vendor = upstreams.open(flow(text("a"), 60.0))
    document = bundle.document(purpose("plain", remote("engine", vendor.port, in_flight_max=1)))
    site = launch(document, running_max=1, waiting_max=1)
    for _ in range(5):
        with site.caller.stream("plain") as streamed:
            next(streamed.events())
        checks.outcome(site.caller, streamed.request_id, Governed.CANCELLED)
    vendor.replies[:] = [flow(text("a"), END, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        assert streamed.rest()[-1] == "[DONE]"
    assert site.caller.post(body_of(), headers_of("nothing")).status_code == 403
