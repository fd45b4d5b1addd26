"""Anthropic's Messages over the wire: answers and streams of every kind of provider, and the codes that other files do
not raise on every mouth. What a model is sent of them: test_messages_sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import Json, limit, purpose, remote, sim
from tests.harness.caller import CANARY, Caller, Streamed, headers_of
from tests.harness.checks import Checks
from tests.harness.claude import BEGUN, anthropic_at, block, claude_says, ended, event
from tests.harness.mouths import MESSAGES
from tests.harness.upstreams import COST, DONE, END, USED, Gate, answer, chunk, flow, text
from tests.providers.vendor import Vendor, streams

SCHEMA: Json = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
GOOD, BAD = '{"sum": 5}', f'{{"sum": "{CANARY}"}}'
TOOL: Json = {"name": "look_up", "input_schema": {"type": "object"}}
CHAT_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
FLOWING_HEADERS = {"x-terraflow-request-id", "x-terraflow-capability"}
EVENTS = [
    "message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop",
]  # fmt: skip


@pytest.fixture(scope="module")
def site(launch_shared: Launch, engine: Vendor, claude: Vendor) -> Site:
    open_ai, other = remote("engine", engine.port), anthropic_at("claude", claude.port)
    down: Json = {"fail": "authentication"}
    rules: Json = {"json_schema": SCHEMA}
    mends: list[Json] = [{"text": said, "usage": {"input": 10, "output": 5}} for said in (BAD, GOOD)]
    return launch_shared(
        bundle.document(
            purpose("plain", open_ai, tools=["look_up", "bash"]),
            purpose("thinks", other, tools=["look_up", "bash"]),
            purpose("simulated", sim("sims", {"text": "Certainly.", "chunks": 2}), tools=["look_up"]),
            purpose("cached", open_ai, response_cache={"ttl_s": 600}),
            purpose("repaired", sim("mends", *mends, *mends), output=rules),
            purpose("asked", open_ai, output={"requested_schema": True}),
            purpose("buffered", open_ai, output={"stream": "buffered"}),
            purpose("recovers", sim("falls", down), sim("spare")),
            purpose("once", sim("one"), requests_per_minute=1),
            purpose("poor", sim("two")),
            purpose("down", sim("always-down", {"fail": "server_error"})),
            budgets=[limit("workload", "poor", "hour", "0.000001")],
        ),
        health_faults_max=3,
    )


@pytest.fixture(autouse=True)
def _healthy(engine: Vendor, claude: Vendor) -> None:
    engine.replies[:] = [answer()]
    claude.replies[:] = [claude_says({"type": "text", "text": "Certainly."})]


@pytest.fixture
def caller(site: Site, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setattr(Caller, "mouth", MESSAGES)
    return site.caller


def body(**fields: Any) -> Json:
    """A body in Anthropic's own words."""
    return {"max_tokens": 100, "messages": [{"role": "user", "content": f"Hello {CANARY}"}]} | fields


def post(caller: Caller, workload: str, **fields: Any) -> Any:
    return caller.post(body(**fields), headers_of(workload), MESSAGES.path)


def bodies(streamed: Streamed) -> list[Json]:
    return [json.loads(data) for data in streamed.rest()]


# Answers and streams of every kind of provider.


@pytest.mark.parametrize(("workload", "capability"), [("plain", "engine"), ("thinks", "claude"), ("simulated", "sims")])
def test_a_whole_answer(workload: str, capability: str, caller: Caller, checks: Checks) -> None:
    # Without a price of its own, a cached token costs as much as another, and a cache write twice as much.
    cost = 4 + 3 + 2 * 3 + 2 * 5 if workload == "thinks" else None
    found = checks.answered(caller, caller.ask(workload), capability=capability, cost=cost)
    assert found["content"] == [{"type": "text", "text": "Certainly."}]
    assert (found["stop_reason"], found["stop_sequence"]) == ("end_turn", None)


FLOWS = {
    "engine": flow(text("Certain"), text("ly."), END, USED, DONE),
    "claude": streams(
        BEGUN,
        *block(
            0,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Certain"},
            {"type": "text_delta", "text": "ly."},
        ),
        *ended(),
    ),
}


@pytest.mark.parametrize(("workload", "capability"), [("plain", "engine"), ("thinks", "claude"), ("simulated", "sims")])
def test_a_stream(
    workload: str, capability: str, caller: Caller, engine: Vendor, claude: Vendor, checks: Checks
) -> None:
    engine.replies[:], claude.replies[:] = [FLOWS["engine"]], [FLOWS["claude"]]
    with caller.stream(workload) as streamed:
        response = streamed.response
        assert response.headers["content-type"].startswith("text/event-stream")
        assert {name for name in response.headers if name.startswith("x-terraflow")} == FLOWING_HEADERS
        assert response.headers["request-id"] == streamed.request_id
        events = bodies(streamed)
    assert [e["type"] for e in events] == EVENTS
    message = events[0]["message"]
    assert message["id"] == "msg_" + streamed.request_id.removeprefix("req_")
    assert message["model"] == capability
    assert events[3]["delta"]["text"] + events[4]["delta"]["text"] == "Certainly."
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    outcome = checks.outcome(caller, streamed.request_id, Governed.PERMITTED)
    usage = events[-2]["usage"]
    assert usage["output_tokens"] == outcome["usage"]["output"]
    if workload == "thinks":
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (4, 6)


def test_events_pass_one_by_one_and_are_what_the_record_has(site: Site, caller: Caller, engine: Vendor) -> None:
    gate = Gate()
    engine.replies[:] = [flow(text("Certain"), gate, text("ly."), END, USED, DONE)]
    with caller.stream("plain") as streamed:
        events: Iterator[str] = streamed.events()
        first = [next(events) for _ in range(4)]
        assert json.loads(first[-1])["delta"]["text"] == "Certain"
        gate.open()
        *rest, _, _ = list(events)
    sent = "".join(f"event: {json.loads(data)['type']}\ndata: {data}\n\n" for data in [*first, *rest]).encode()
    recorded = caller.evidence(streamed.request_id)["outcome"]["answer"]
    assert recorded == {"bytes": len(sent), "digest": hashlib.sha256(sent).hexdigest()}


def test_thinking_tools_and_text_of_anthropics_stream_come_as_they_were(caller: Caller, claude: Vendor) -> None:
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "sig=="},
    )
    hidden = block(1, {"type": "redacted_thinking", "data": "xyz"})
    said = block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "so"})
    calls = [
        block(
            3 + n,
            {"type": "tool_use", "id": f"t{n}", "name": "look_up", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"n":'},
            {"type": "input_json_delta", "partial_json": f"{n}}}"},
        )
        for n in range(2)
    ]
    blocks = [*thought, *hidden, *said, *calls[0], *calls[1]]
    claude.replies[:] = [streams(BEGUN, *blocks, *ended("tool_use"))]
    with caller.stream("thinks", tools=[CHAT_TOOL]) as streamed:
        events = bodies(streamed)
    assert [event(e.pop("type"), **e) for e in events[2:-2]] == blocks
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


CITATION = {
    "type": "page_location",
    "cited_text": "a",
    "document_index": 0,
    "document_title": "t",
    "start_page_number": 1,
    "end_page_number": 2,
}
ASKS_TO_CITE: list[Json] = [
    {
        "role": "user",
        "content": [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a"},
                "citations": {"enabled": True},
            }
        ],
    }
]


def test_citations_come_as_they_were_and_go_back(caller: Caller, claude: Vendor) -> None:
    content = [{"type": "text", "text": "So: "}, {"type": "text", "text": "a.", "citations": [CITATION]}]
    claude.replies[:] = [claude_says(*content)]
    assert post(caller, "thinks", messages=ASKS_TO_CITE).json()["content"] == content
    said = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So: "})
    cited = block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "a."},
        {"type": "citations_delta", "citation": CITATION},
    )
    claude.replies[:] = [streams(BEGUN, *said, *cited, *ended())]
    turns = [*ASKS_TO_CITE, {"role": "assistant", "content": content}, {"role": "user", "content": "and?"}]
    raw = post(caller, "thinks", messages=turns, stream=True).text
    events = [json.loads(line.removeprefix("data: ")) for line in raw.splitlines() if line.startswith("data: ")]
    assert [event(e.pop("type"), **e) for e in events if "index" in e] == [*said, *cited]
    assert claude.requests[-1].body["messages"][:2] == turns[:2]


def test_an_answer_of_anthropics_comes_as_it_was(caller: Caller, claude: Vendor) -> None:
    use = {"type": "tool_use", "id": "t", "name": "look_up", "input": {"a": 1}}
    content = [THOUGHT, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "so"}, use]
    claude.replies[:] = [claude_says(*content, stop="tool_use")]
    found = post(caller, "thinks", tools=[TOOL]).json()
    assert found["content"] == content
    assert found["stop_reason"] == "tool_use"
    usage = found["usage"]
    counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    assert [usage[count] for count in counts] == [4, 3, 3, 5]


def test_parallel_calls_of_an_engine_stay_apart(caller: Caller, engine: Vendor) -> None:
    def call(index: int, **fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": index} | fields]})

    def opened(index: int) -> bytes:
        return call(index, id=f"t{index}", type="function", function={"name": "look_up", "arguments": ""})

    pieces = [
        opened(0),
        opened(1),
        call(1, function={"arguments": '{"n":1}'}),
        call(0, function={"arguments": '{"n":0}'}),
    ]
    engine.replies[:] = [flow(*pieces, chunk({}, "tool_calls"), USED, DONE)]
    with caller.stream("plain", tools=[CHAT_TOOL]) as streamed:
        events = bodies(streamed)
    starts = [e["content_block"]["id"] for e in events if e["type"] == "content_block_start"]
    deltas = [(e["index"], e["delta"]["partial_json"]) for e in events if e["type"] == "content_block_delta"]
    assert starts == ["t0", "t1"]
    assert deltas == [(0, '{"n":0}'), (1, '{"n":1}')]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


# Codes whose scenarios are used up by one mouth.


def test_a_tool_that_the_contract_does_not_list(caller: Caller, checks: Checks) -> None:
    for tool in (TOOL | {"name": "other"}, {"type": "memory_20250818", "name": "memory"}):
        checks.refused(caller, post(caller, "plain", tools=[tool]), Governed.TOOL_NOT_PERMITTED)
    chosen = {"type": "tool", "name": "other"}
    checks.refused(caller, post(caller, "plain", tool_choice=chosen), Governed.TOOL_NOT_PERMITTED)


def test_the_second_request_of_a_minute(caller: Caller, checks: Checks) -> None:
    checks.answered(caller, caller.ask("once"), capability="one")
    limited = caller.ask("once")
    checks.refused(caller, limited, Governed.RATE_LIMITED, detail="workload", retry_after=True)


def test_a_budget_that_has_no_room(caller: Caller, checks: Checks) -> None:
    checks.refused(caller, caller.ask("poor"), Governed.BUDGET_EXHAUSTED, detail="workload_hour")


def test_health_alone_stands_in_the_way(caller: Caller, checks: Checks) -> None:
    failed = caller.ask("down")
    checks.refused(caller, failed, Governed.PROVIDER_ERROR_UNRECOVERED, detail="server_error")
    checks.refused(caller, caller.ask("down"), Governed.TIER_NOT_AVAILABLE, retry_after=True)
    pinned = caller.ask("down", model="always-down")
    checks.refused(caller, pinned, Governed.PROVIDER_UNHEALTHY, capability="always-down", retry_after=True)


def test_an_answer_of_another_route(caller: Caller, checks: Checks) -> None:
    checks.answered(caller, caller.ask("recovers"), Governed.PROVIDER_ERROR_RECOVERED, capability="spare")


def test_an_answer_from_the_cache(caller: Caller, checks: Checks) -> None:
    checks.answered(caller, caller.ask("cached"), capability="engine", cost=COST)
    hit = checks.answered(caller, caller.ask("cached"), Governed.CACHE_HIT, capability="engine", cost=0, also=())
    assert hit["content"] == [{"type": "text", "text": "Certainly."}]


def test_keys_belong_to_the_mouth(site: Site, caller: Caller, checks: Checks) -> None:
    key = {"Idempotency-Key": f"mine {CANARY}"}
    first = caller.post(body(), headers_of("plain") | key, MESSAGES.path)
    checks.answered(caller, first, capability="engine", cost=COST)
    again = caller.post(body(), headers_of("plain") | key, MESSAGES.path)
    assert checks.replayed(caller, again, first)["content"] == first.json()["content"]
    other = caller.post(body(max_tokens=7), headers_of("plain") | key, MESSAGES.path)
    checks.refused(caller, other, Governed.IDEMPOTENCY_CONFLICT)
    chat = caller.post(body(), headers_of("plain") | key)
    checks.refused(caller, chat, Governed.IDEMPOTENCY_CONFLICT)


# Streams that are collected, filtered or cut off.


def test_a_checked_answer_is_collected_and_then_streamed(caller: Caller, checks: Checks) -> None:
    code = Governed.VALIDATION_REPAIRED
    whole = checks.answered(caller, caller.ask("repaired"), code, capability="mends", cost=2 * COST)
    with caller.stream("repaired") as streamed:
        events = bodies(streamed)
    assert checks.raised.wire(200, streamed.response.headers, b"", streamed.response.url.path) is code
    assert [e["type"] for e in events] == EVENTS[:3] + EVENTS[4:]
    assert events[3]["delta"]["text"] == whole["content"][0]["text"] == GOOD
    assert events[0]["message"]["usage"] == whole["usage"] | {"output_tokens": 0}
    assert whole["usage"]["input_tokens"] > 0
    checks.outcome(caller, streamed.request_id, code, cost=2 * COST)


def test_a_buffered_and_keyed_stream_is_replayed_as_events(caller: Caller, engine: Vendor, checks: Checks) -> None:
    key = {"headers": headers_of(key="replayed stream")}
    answers: list[list[Json]] = []
    responses = []
    for _ in range(2):
        with caller.stream("buffered", **key) as streamed:
            answers.append(bodies(streamed))
            responses.append(streamed.response)
    checks.replayed(caller, responses[1], responses[0])
    assert [e for e in answers[0] if "index" in e] == [e for e in answers[1] if "index" in e]


def test_the_schema_that_the_caller_asks_for(caller: Caller, engine: Vendor, checks: Checks) -> None:
    asked = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    engine.replies[:] = [answer(GOOD)]
    assert checks.answered(caller, post(caller, "asked", **asked), capability="engine", cost=COST)["content"]
    sent = engine.requests[-1].body["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    engine.replies[:] = [answer(BAD)]
    blocked = post(caller, "asked", **asked)
    code = Governed.VALIDATION_BLOCKED
    checks.refused(caller, blocked, code, detail="json_schema", cost=2 * COST, capability="engine")


@pytest.mark.parametrize("workload", ["plain", "thinks"])
def test_a_stream_that_is_cut_off_ends_in_an_error(
    workload: str, caller: Caller, engine: Vendor, claude: Vendor, checks: Checks
) -> None:
    engine.replies[:] = [flow(text("Certain"), end=False)]
    started = event("content_block_start", index=0, content_block={"type": "text", "text": "Certain"})
    claude.replies[:] = [flow(BEGUN, started, end=False)]
    with caller.stream(workload) as streamed:
        checks.broken(caller, streamed, streamed.rest(), Governed.PROVIDER_ERROR_UNRECOVERED, "cut_off")


def test_a_stream_that_the_vendor_refuses_to_finish_says_so(caller: Caller, claude: Vendor) -> None:
    claude.replies[:] = [streams(BEGUN, *block(0, {"type": "text", "text": "I"}), *ended("refusal"))]
    with caller.stream("thinks") as streamed:
        assert bodies(streamed)[-2]["delta"]["stop_reason"] == "refusal"


def test_a_stop_sequence_is_named(caller: Caller, claude: Vendor, engine: Vendor) -> None:
    stop = event("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}, usage={})
    claude.replies[:] = [streams(BEGUN, *block(0, {"type": "text", "text": "I"}), stop, event("message_stop"))]
    named = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    with caller.stream("thinks", stop=["END"]) as streamed:
        assert bodies(streamed)[-2]["delta"] == named
    ends = chunk({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}])
    engine.replies[:] = [flow(text("I"), ends, USED, DONE)]
    with caller.stream("plain", stop=["END"]) as streamed:
        assert bodies(streamed)[-2]["delta"] == named


# Before governance.


@pytest.mark.parametrize(
    ("headers", "code", "field"),
    [
        ({"X-TerraFlow-Data-Class": "secret"}, ModelApi.INVALID_DATA_CLASS, None),
        ({"X-TerraFlow-Deadline-Ms": "soon"}, ModelApi.INVALID_DEADLINE, None),
        ({"X-TerraFlow-Sensitive-Types": "pii,x"}, ModelApi.INVALID_SENSITIVE_TYPE, None),
        ({"X-TerraFlow-Unknown": "x"}, ModelApi.INVALID_REQUEST, "headers"),
        ({"Content-Type": "text/plain"}, ModelApi.INVALID_REQUEST, "content-type"),
    ],
)
@pytest.mark.parametrize("path", [MESSAGES.path, "/messages/count_tokens"])
def test_a_head_that_is_wrong(
    path: str, headers: dict[str, str], code: ModelApi, field: str | None, caller: Caller, checks: Checks
) -> None:
    checks.ungoverned(caller.post(body(), headers, path), code, field=field)


@pytest.mark.parametrize("path", [MESSAGES.path, "/messages/count_tokens"])
def test_a_body_that_is_wrong(path: str, caller: Caller, checks: Checks) -> None:
    for wrong in (b"{", body(messages=[]), body() | {CANARY: 1}, body(messages=[{"role": "user", "content": 7}])):
        problem = checks.ungoverned(caller.post(wrong, path=path), ModelApi.INVALID_REQUEST)
        assert set(problem) == {"field", "rule"}
    large = checks.ungoverned(caller.post(b"x" * 9_000_000, path=path), ModelApi.INVALID_REQUEST)
    assert large["field"] == "body"


@pytest.mark.parametrize("path", [MESSAGES.path, "/messages/count_tokens"])
@pytest.mark.parametrize("kind", ["image", "document"])
def test_an_address_that_nobody_should_fetch(kind: str, path: str, caller: Caller, checks: Checks) -> None:
    block = {"type": kind, "source": {"type": "url", "url": f"http://10.0.0.1/{CANARY}"}}
    said = {"messages": [{"role": "user", "content": [block]}]} | ({"max_tokens": 9} if path == MESSAGES.path else {})
    problem = checks.ungoverned(caller.post(said, path=path), ModelApi.INVALID_REQUEST)
    assert problem == {"field": "messages[0].content[0].source.url", "rule": "must be an https address"}


@pytest.mark.parametrize("path", [MESSAGES.path, "/messages/count_tokens"])
def test_who_calls_and_how(path: str, site: Site, caller: Caller, checks: Checks) -> None:
    stranger = site.caller_with("tf_wrong")
    checks.ungoverned(stranger.post(body(), path=path), Governed.APP_UNAUTHENTICATED, named=False)
    checks.ungoverned(caller.get(path), ModelApi.NOT_FOUND)
    checks.ungoverned(caller.post(body(), path="/messages/batches"), ModelApi.NOT_FOUND)


def test_tokens_are_counted_without_a_model(caller: Caller, engine: Vendor) -> None:
    calls = len(engine.requests)
    asked = {"model": "plain", "messages": [{"role": "user", "content": "x" * 4_000}], "tools": [TOOL]}
    response = caller.post(asked, path="/messages/count_tokens")
    assert response.status_code == 200
    counted = response.json()
    assert set(counted) == {"input_tokens"}
    assert 1_000 < counted["input_tokens"] < 1_100
    assert "x-terraflow-reason" not in response.headers
    assert response.headers["request-id"] == response.headers["x-terraflow-request-id"]
    assert len(engine.requests) == calls
