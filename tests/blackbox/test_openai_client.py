"""OpenAI's own client, unmodified, against the real process: answers, streams, tools, parsed output, errors,
retries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import CANARY, headers_of
from tests.harness.checks import Checks
from tests.harness.upstreams import DONE, END, USED, Upstreams, answer, chunk, completion, flow, says, text
from tests.harness.vendor_clients import ASKED, PARAMETERS, POOR, Total, Wire, scripted, weather_call
from tests.providers.vendor import Vendor

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}


CALLS = [weather_call(0, "Pune"), weather_call(1, "Oslo")]


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("plain", engine, tools=["weather"]),
            *scripted(),
            budgets=POOR,
        ),
        health_faults_max=10_000,
    )


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(site: Site, wire: Wire) -> Iterator[openai.OpenAI]:
    with _client(site, wire, site.caller.api_key) as made:
        yield made


def _client(site: Site, wire: Wire, api_key: str) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(event_hooks={"request": [wire.sent]})
    return openai.OpenAI(base_url=site.plane.base_url, api_key=api_key, http_client=http, timeout=20)


def test_a_plain_answer(client: openai.OpenAI, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer("Certainly.")]
    raw = client.chat.completions.with_raw_response.create(model="plain", messages=ASKED)
    said = raw.parse()
    assert said.choices[0].message.content == "Certainly."
    assert said.choices[0].finish_reason == "stop"
    assert said.model == "engine"
    assert said.usage is not None and said.usage.total_tokens == 15
    checks.answered(site.caller, raw.http_response, capability="engine")


def test_a_streamed_answer(client: openai.OpenAI, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certain"), text("ly."), END, USED, DONE)]
    raw = client.chat.completions.with_raw_response.create(model="plain", messages=ASKED, stream=True)
    chunks = list(raw.parse())
    assert [c.choices[0].delta.content for c in chunks] == ["Certain", "ly.", None]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(c.usage is None for c in chunks)
    assert "x-terraflow-reason" not in raw.headers
    checks.outcome(site.caller, raw.headers["x-terraflow-request-id"], Governed.PERMITTED)


def test_a_streamed_answer_with_usage(client: openai.OpenAI, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("a"), END, USED, DONE)]
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(model="plain", messages=ASKED, stream=True, stream_options=options)
    *_, last = stream
    assert last.choices == []
    assert last.usage is not None and (last.usage.prompt_tokens, last.usage.completion_tokens) == (10, 5)


@pytest.mark.parametrize("left_out", [{"content": "Certainly."}, {"role": None, "content": "Certainly."}, {}])
def test_an_answer_has_a_role_and_a_content_whatever_the_engine_leaves_out(
    left_out: dict[str, Any], client: openai.OpenAI, vendor: Vendor
) -> None:
    calls = {"tool_calls": CALLS} if not left_out else {}
    whole = completion(None)
    whole["choices"][0]["message"] = left_out | calls
    vendor.replies[:] = [says(200, whole)]
    raw = client.chat.completions.with_raw_response.create(model="plain", messages=ASKED, tools=[TOOL])
    message = json.loads(raw.content)["choices"][0]["message"]
    assert (message["role"], message["content"]) == ("assistant", left_out.get("content"))


def test_each_choice_of_a_stream_begins_with_its_role_whatever_the_engine_leaves_out(
    client: openai.OpenAI, vendor: Vendor
) -> None:
    first, second = ({"index": index, "delta": {"content": "a"}, "finish_reason": None} for index in (0, 1))
    named = second | {"delta": {"role": "assistant", "content": "b"}}
    last = [choice | {"delta": {}, "finish_reason": "stop"} for choice in (first, second)]
    sent = [chunk({}, choices=choices) for choices in ([first], [first, named], last)]
    vendor.replies[:] = [flow(*sent, USED, DONE)]
    stream = client.chat.completions.create(model="plain", messages=ASKED, stream=True, n=2)
    heard = [(choice.index, choice.delta.role) for each in stream for choice in each.choices]
    assert heard == [(0, "assistant"), (0, None), (1, "assistant"), (0, None), (1, None)]


def test_the_streaming_helper_puts_an_answer_together(client: openai.OpenAI, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("Certain"), text("ly."), END, USED, DONE)]
    with client.chat.completions.stream(model="plain", messages=ASKED) as stream:
        final = stream.get_final_completion()
    assert (final.choices[0].message.role, final.choices[0].message.content) == ("assistant", "Certainly.")


def test_tools_called_in_parallel_and_their_results(client: openai.OpenAI, vendor: Vendor) -> None:
    vendor.replies[:] = [says(200, completion(None, finish_reason="tool_calls", tool_calls=CALLS))]
    first = client.chat.completions.create(model="plain", messages=ASKED, tools=[TOOL])
    calls = first.choices[0].message.tool_calls
    assert calls is not None
    assert [json.loads(call.function.arguments)["city"] for call in calls if call.type == "function"] == [
        "Pune",
        "Oslo",
    ]
    vendor.replies[:] = [answer("Warm there, cold here.")]
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": f"{call.id}: 5 °C"} for call in calls]
    messages = [*ASKED, first.choices[0].message, *results]
    second = client.chat.completions.create(model="plain", messages=messages, tools=[TOOL])
    assert second.choices[0].message.content == "Warm there, cold here."
    sent = vendor.requests[-1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["call_0", "call_1"]


def test_tools_called_in_a_stream(client: openai.OpenAI, site: Site) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    with client.chat.completions.stream(model="calls", messages=ASKED, tools=[TOOL], tool_choice=choice) as stream:
        final = stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": ""}


def test_parsed_output(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(model="extract", messages=ASKED, response_format=Total)
    assert parsed.choices[0].message.parsed == Total(total=0, items=[])


def test_parsed_output_that_the_model_cannot_give(client: openai.OpenAI, wire: Wire, checks: Checks) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as met:
        client.chat.completions.parse(model="garbles", messages=ASKED, response_format=Total)
    assert checks.raised(met.value.response) is Governed.VALIDATION_BLOCKED
    assert wire.requests == 1


def test_models_are_listed(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:3] == ["calls", "down", "extract"]
    assert {"engine", "one"} <= set(names)


def test_headers_of_the_plane(client: openai.OpenAI, site: Site, checks: Checks) -> None:
    headers = headers_of("keyed", key="by header", data_class="public", deadline_ms=5_000)
    for code in (Governed.PERMITTED, Governed.IDEMPOTENCY_REPLAY):
        raw = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=ASKED, extra_headers=headers)
        assert checks.raised(raw.http_response) is code
        assert raw.headers["x-terraflow-capability"] == raw.parse().model == "three"


def test_headers_of_every_request_and_what_the_plane_says_beside_an_answer_or_an_error(client: openai.OpenAI) -> None:
    said = client.with_options(default_headers=headers_of("plain"))
    answered: Any = _asked(said, "gpt-4o")
    assert answered.terraflow["reason_code"] == Governed.PERMITTED
    with pytest.raises(openai.BadRequestError) as met:
        _asked(client.with_options(default_headers=headers_of("keyed")), "gpt-4o")
    assert met.value.response.json()["terraflow"]["reason_code"] == Governed.IDEMPOTENCY_KEY_REQUIRED


# Errors and retries: what would be asked in vain is asked once.


def _asked(client: openai.OpenAI, workload: str, **more: Any) -> Any:
    return client.chat.completions.create(model=workload, messages=ASKED, **more)


@pytest.mark.parametrize(
    ("workload", "more", "kind", "code"),
    [
        ("plain", {"temperature": 9}, openai.BadRequestError, ModelApi.INVALID_REQUEST),
        ("keyed", {}, openai.BadRequestError, Governed.IDEMPOTENCY_KEY_REQUIRED),
        ("filtered", {}, openai.BadRequestError, Governed.CONTENT_FILTERED),
        ("extract", {"tools": [TOOL]}, openai.PermissionDeniedError, Governed.TOOL_NOT_PERMITTED),
        ("poor", {}, openai.RateLimitError, Governed.BUDGET_EXHAUSTED),
        ("plain", {"extra_headers": headers_of("no-such")}, openai.PermissionDeniedError, Governed.UNKNOWN_WORKLOAD),
    ],
)
def test_an_error_that_no_retry_would_mend_is_asked_once(
    workload: str,
    more: Any,
    kind: type[openai.APIStatusError],
    code: Any,
    client: openai.OpenAI,
    wire: Wire,
    checks: Checks,
) -> None:
    with pytest.raises(kind) as met:
        _asked(client, workload, **more)
    assert checks.raised(met.value.response) is code
    assert met.value.code == code
    assert met.value.type is not None
    assert CANARY not in str(met.value)
    assert wire.requests == 1


def test_the_message_says_which_of_the_offered_tools_is_not_permitted(client: openai.OpenAI) -> None:
    """The message is all that OpenAI's client for Node.js shows."""
    other: Any = {"type": "function", "function": {"name": f"other_{CANARY}"}}
    with pytest.raises(openai.PermissionDeniedError) as met:
        _asked(client, "plain", tools=[TOOL, other, TOOL, other])
    assert met.value.code == Governed.TOOL_NOT_PERMITTED
    assert met.value.message.endswith("Here: tools[1], tools[3].")
    assert CANARY not in str(met.value)


def test_a_key_that_is_none(site: Site, wire: Wire, checks: Checks) -> None:
    with _client(site, wire, "tf_wrong") as client, pytest.raises(openai.AuthenticationError) as met:
        _asked(client, "plain")
    assert checks.raised(met.value.response) is Governed.APP_UNAUTHENTICATED
    assert wire.requests == 1


def test_the_same_key_for_another_body_is_asked_once(client: openai.OpenAI, wire: Wire, checks: Checks) -> None:
    headers = headers_of("plain", key="conflict")
    _asked(client, "plain", extra_headers=headers, seed=1)
    with pytest.raises(openai.ConflictError) as met:
        _asked(client, "plain", extra_headers=headers, seed=2)
    assert checks.raised(met.value.response) is Governed.IDEMPOTENCY_CONFLICT
    assert wire.requests == 2


def test_an_error_that_a_retry_may_mend_is_asked_again(client: openai.OpenAI, wire: Wire) -> None:
    assert _asked(client, "down").model == "fails"
    assert wire.requests == 3


def test_a_rate_limit_says_when_to_come_back(client: openai.OpenAI, wire: Wire, checks: Checks) -> None:
    _asked(client, "once")
    with pytest.raises(openai.RateLimitError) as met:
        _asked(client.with_options(max_retries=0), "once")
    assert checks.raised(met.value.response) is Governed.RATE_LIMITED
    assert int(met.value.response.headers["retry-after"]) >= 1
    assert wire.requests == 2


def test_a_stream_that_breaks_off_raises(client: openai.OpenAI, vendor: Vendor, site: Site, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Cert"), end=False)]
    raw = client.chat.completions.with_raw_response.create(model="plain", messages=ASKED, stream=True)
    with pytest.raises(openai.APIError) as met:
        list(raw.parse())
    assert met.value.code == Governed.PROVIDER_ERROR_UNRECOVERED
    checks.outcome(site.caller, raw.headers["x-terraflow-request-id"], Governed.PROVIDER_ERROR_UNRECOVERED)
