"""Anthropic's own client, unmodified, against the real process: answers, streams, tools, parsed output, errors,
retries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from terraflow.core.reasons import Governed, ModelApi, reason
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import CANARY, headers_of
from tests.harness.checks import Checks
from tests.harness.claude import BEGUN, anthropic_at, block, claude_says, ended, event
from tests.harness.mouths import MESSAGES
from tests.harness.upstreams import DONE, END, USED, Gate, Upstreams, answer, completion, flow, held, says, text
from tests.harness.vendor_clients import ASKED, PARAMETERS, POOR, Total, Wire, scripted, weather_call
from tests.providers.vendor import Vendor, streams

TOOL: Any = {"name": "weather", "input_schema": PARAMETERS}


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor, claude: Vendor) -> Site:
    return launch_shared(
        bundle.document(
            purpose("plain", remote("engine", vendor.port), tools=["weather"]),
            purpose("thinks", anthropic_at("claude", claude.port), tools=["weather"]),
            *scripted(),
            budgets=POOR,
        ),
        health_faults_max=10_000,
        heartbeat_s=1,
    )


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(site: Site, wire: Wire) -> Iterator[anthropic.Anthropic]:
    with _client(site, wire, site.caller.api_key) as made:
        yield made


def _client(site: Site, wire: Wire, api_key: str) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(event_hooks={"request": [wire.sent]})
    base_url = site.plane.base_url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=base_url, api_key=api_key, http_client=http, timeout=20)


def test_a_plain_answer(client: anthropic.Anthropic, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Certainly.")]
    raw = client.messages.with_raw_response.create(model="plain", max_tokens=50, messages=ASKED)
    said = raw.parse()
    assert [block.text for block in said.content if block.type == "text"] == ["Certainly."]
    assert (said.stop_reason, said.model) == ("end_turn", "engine")
    assert (said.usage.input_tokens, said.usage.output_tokens) == (10, 5)
    assert said._request_id == raw.headers["x-terraflow-request-id"]
    checks.answered(site.caller, raw.http_response, capability="engine")


def test_a_streamed_answer(client: anthropic.Anthropic, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certain"), text("ly."), END, USED, DONE)]
    raw = client.messages.with_raw_response.create(model="plain", max_tokens=50, messages=ASKED, stream=True)
    events = list(raw.parse())
    assert [e.delta.text for e in events if e.type == "content_block_delta" and e.delta.type == "text_delta"] == [
        "Certain",
        "ly.",
    ]
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"
    assert "x-terraflow-reason" not in raw.headers
    checks.outcome(site.caller, raw.headers["x-terraflow-request-id"], Governed.PERMITTED)


def test_the_streaming_helper_puts_an_answer_together(client: anthropic.Anthropic, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("Certain"), text("ly."), END, USED, DONE)]
    with client.messages.stream(model="plain", max_tokens=50, messages=ASKED) as stream:
        assert "".join(stream.text_stream) == "Certainly."
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (10, 5)


def test_thinking_and_a_call_are_streamed_and_go_back_as_they_came(client: anthropic.Anthropic, claude: Vendor) -> None:
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "sig=="},
    )
    use = block(
        1,
        {"type": "tool_use", "id": "t0", "name": "weather", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"city": "Pune"}'},
    )
    claude.replies[:] = [streams(BEGUN, *thought, event("ping"), *use, *ended("tool_use"))]
    settings: Any = {"thinking": {"type": "adaptive"}, "tools": [TOOL], "model": "thinks", "max_tokens": 2_000}
    with client.messages.stream(messages=ASKED, **settings) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert final.usage.cache_read_input_tokens == 6
    claude.replies[:] = [claude_says({"type": "text", "text": "Warm."})]
    result = {"type": "tool_result", "tool_use_id": "t0", "content": "30 °C"}
    turns: Any = [*ASKED, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(messages=turns, **settings)
    assert second.content[0].type == "text"
    sent = claude.requests[-1].body["messages"]
    called = {"type": "tool_use", "id": "t0", "name": "weather", "input": {"city": "Pune"}}
    assert sent[1]["content"] == [{"type": "thinking", "thinking": "hm", "signature": "sig=="}, called]
    assert sent[2]["content"] == [result]


def test_tools_called_in_parallel_and_their_results(client: anthropic.Anthropic, vendor: Vendor) -> None:
    calls = [weather_call(0, "Pune"), weather_call(1, "Oslo")]
    vendor.replies[:] = [says(200, completion(None, finish_reason="tool_calls", tool_calls=calls))]
    first = client.messages.create(model="plain", max_tokens=50, messages=ASKED, tools=[TOOL])
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"city": "Pune"}, {"city": "Oslo"}]
    assert first.stop_reason == "tool_use"
    vendor.replies[:] = [answer("Warm there, cold here.")]
    results: Any = [{"type": "tool_result", "tool_use_id": use.id, "content": "5 °C"} for use in uses]
    turns: Any = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = client.messages.create(model="plain", max_tokens=50, messages=turns, tools=[TOOL])
    assert [block.text for block in second.content if block.type == "text"] == ["Warm there, cold here."]
    sent = vendor.requests[-1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["call_0", "call_1"]


def test_tools_called_in_a_stream(client: anthropic.Anthropic) -> None:
    choice: Any = {"type": "tool", "name": "weather"}
    with client.messages.stream(
        model="calls", max_tokens=50, messages=ASKED, tools=[TOOL], tool_choice=choice
    ) as stream:
        [use] = stream.get_final_message().content
    assert use.type == "tool_use"
    assert (use.name, use.input) == ("weather", {"city": ""})


def test_the_tool_runner_goes_on_without_a_thread(client: anthropic.Anthropic, vendor: Vendor, wire: Wire) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """What it is like outside."""
        return f"35 °C in {city}"

    calls = says(200, completion(None, finish_reason="tool_calls", tool_calls=[weather_call(0, "Pune")]))
    vendor.replies[:] = [calls] * (len(vendor.requests) + 1) + [answer("Warm there.")]
    runner = client.beta.messages.tool_runner(model="plain", max_tokens=50, messages=ASKED, tools=[weather])
    assert [block.text for block in runner.until_done().content if block.type == "text"] == ["Warm there."]
    assert wire.requests == 3
    assert [message["role"] for message in vendor.requests[-1].body["messages"]] == ["user", "assistant", "tool"]


def test_a_thread_is_refused_in_the_vendors_own_words(client: anthropic.Anthropic, wire: Wire, checks: Checks) -> None:
    thread = {"thread": {"type": "create"}}
    with pytest.raises(anthropic.types.ThreadUnsupportedRequestError) as met:
        client.messages.create(model="plain", max_tokens=50, messages=ASKED, extra_body=thread)
    assert checks.raised(met.value.response) is ModelApi.INVALID_REQUEST
    assert "thread" in met.value.message
    assert wire.requests == 1


@pytest.mark.parametrize("path", ["/messages", "/messages/count_tokens"])
@pytest.mark.parametrize("raw", [b"[null]", b'"thread"', b"null", b'{"thread": null}'])
def test_a_body_that_is_no_request(path: str, raw: bytes, site: Site, checks: Checks) -> None:
    response = site.caller.post(raw, path=path)
    assert checks.raised(response) is ModelApi.INVALID_REQUEST
    assert "details" not in response.json()["error"]


def test_parsed_output(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(model="extract", max_tokens=50, messages=ASKED, output_format=Total)
    assert parsed.parsed_output == Total(total=0, items=[])


def test_parsed_output_that_the_model_cannot_give(client: anthropic.Anthropic, wire: Wire, checks: Checks) -> None:
    with pytest.raises(anthropic.UnprocessableEntityError) as met:
        client.messages.parse(model="garbles", max_tokens=50, messages=ASKED, output_format=Total)
    assert checks.raised(met.value.response) is Governed.VALIDATION_BLOCKED
    assert wire.requests == 1


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="plain", messages=ASKED, tools=[TOOL], system="be brief")
    assert counted.input_tokens > 20


def test_headers_of_the_plane(client: anthropic.Anthropic, checks: Checks) -> None:
    headers = headers_of("keyed", key="by header", data_class="public", deadline_ms=5_000)
    for code in (Governed.PERMITTED, Governed.IDEMPOTENCY_REPLAY):
        raw = client.messages.with_raw_response.create(
            model="any-name", max_tokens=50, messages=ASKED, extra_headers=headers
        )
        assert checks.raised(raw.http_response) is code
        assert raw.headers["x-terraflow-capability"] == raw.parse().model == "three"


def test_headers_of_every_request_and_what_the_plane_says_beside_an_answer_or_an_error(
    client: anthropic.Anthropic,
) -> None:
    said = client.with_options(default_headers=headers_of("plain"))
    assert _asked(said, "any-name").terraflow["reason_code"] == Governed.PERMITTED
    with pytest.raises(anthropic.BadRequestError) as met:
        _asked(client.with_options(default_headers=headers_of("keyed")), "any-name")
    body: Any = met.value.body
    assert body["terraflow"]["reason_code"] == Governed.IDEMPOTENCY_KEY_REQUIRED


# Errors and retries: what would be asked in vain is asked once.


def _asked(client: anthropic.Anthropic, workload: str, **more: Any) -> Any:
    return client.messages.create(**({"model": workload, "max_tokens": 50, "messages": ASKED} | more))


@pytest.mark.parametrize(
    ("workload", "more", "kind", "code"),
    [
        ("plain", {"max_tokens": 0}, anthropic.BadRequestError, ModelApi.INVALID_REQUEST),
        ("keyed", {}, anthropic.BadRequestError, Governed.IDEMPOTENCY_KEY_REQUIRED),
        ("filtered", {}, anthropic.BadRequestError, Governed.CONTENT_FILTERED),
        ("extract", {"tools": [TOOL]}, anthropic.PermissionDeniedError, Governed.TOOL_NOT_PERMITTED),
        ("poor", {}, anthropic.RateLimitError, Governed.BUDGET_EXHAUSTED),
        ("plain", {"extra_headers": headers_of("no-such")}, anthropic.PermissionDeniedError, Governed.UNKNOWN_WORKLOAD),
    ],
)
def test_an_error_that_no_retry_would_mend_is_asked_once(
    workload: str,
    more: Any,
    kind: type[anthropic.APIStatusError],
    code: Any,
    client: anthropic.Anthropic,
    wire: Wire,
    checks: Checks,
) -> None:
    with pytest.raises(kind) as met:
        _asked(client, workload, **more)
    assert checks.raised(met.value.response) is code
    assert met.value.request_id == met.value.response.headers["x-terraflow-request-id"]
    assert CANARY not in str(met.value)
    assert wire.requests == 1


def test_a_key_that_is_none(site: Site, wire: Wire, checks: Checks) -> None:
    with _client(site, wire, "tf_wrong") as client, pytest.raises(anthropic.AuthenticationError) as met:
        _asked(client, "plain")
    assert checks.raised(met.value.response) is Governed.APP_UNAUTHENTICATED
    assert wire.requests == 1


def test_an_error_that_a_retry_may_mend_is_asked_again(client: anthropic.Anthropic, wire: Wire) -> None:
    assert _asked(client, "down").model == "fails"
    assert wire.requests == 3


def test_a_rate_limit_says_when_to_come_back(client: anthropic.Anthropic, wire: Wire, checks: Checks) -> None:
    _asked(client, "once")
    with pytest.raises(anthropic.RateLimitError) as met:
        _asked(client.with_options(max_retries=0), "once")
    assert checks.raised(met.value.response) is Governed.RATE_LIMITED
    assert int(met.value.response.headers["retry-after"]) >= 1
    assert wire.requests == 2


def test_a_stream_that_breaks_off_raises(
    client: anthropic.Anthropic, vendor: Vendor, site: Site, checks: Checks
) -> None:
    vendor.replies[:] = [flow(text("Cert"), end=False)]
    raw = client.messages.with_raw_response.create(model="plain", max_tokens=50, messages=ASKED, stream=True)
    with pytest.raises(anthropic.APIStatusError) as met:
        list(raw.parse())
    assert met.value.body["error"]["code"] == Governed.PROVIDER_ERROR_UNRECOVERED  # type: ignore[index]
    checks.outcome(site.caller, raw.headers["x-terraflow-request-id"], Governed.PROVIDER_ERROR_UNRECOVERED)


def test_heartbeats_are_not_heard(client: anthropic.Anthropic, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(1.5, text("Cert"), 1.5, text("ainly."), END, USED, DONE)]
    with client.messages.stream(model="plain", max_tokens=50, messages=ASKED) as stream:
        events = list(stream)
    assert events[0].type == "message_start"
    assert "".join(event.text for event in events if event.type == "text") == "Certainly."


def test_a_refusal_behind_a_heartbeat_raises(site: Site, vendor: Vendor, checks: Checks) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, says(401, {}))]
    raw = b'{"model": "plain", "max_tokens": 50, "stream": true, "messages": [{"role": "user", "content": "x"}]}'
    head = site.caller.authorization | {"Content-Type": "application/json"}
    url = site.plane.base_url + "/messages"
    with httpx2.stream("POST", url, content=raw, headers=head, timeout=20) as response:
        lines = response.iter_lines()
        assert next(lines).startswith(":")
        gate.open()
        [name, data] = [line for line in lines if line and not line.startswith(":")]
    code = Governed.PROVIDER_ERROR_UNRECOVERED
    assert name == "event: error"
    body = json.loads(data.removeprefix("data: "))
    MESSAGES.error(body, 503, reason(code).meaning, None)
    checks.outcome(site.caller, response.headers["request-id"], code)
