"""What a caller asks arrives at the vendor, and what the vendor answers comes back, field by field, on every mouth."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote
from tests.harness.checks import Checks
from tests.harness.mouths import CHAT, INVOCATIONS, MESSAGES, Mouth
from tests.harness.upstreams import COST, DONE, END, USED, Upstreams, answer, chunk, completion, flow, text
from tests.providers.vendor import Vendor, says

SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL: Json = {
    "type": "function",
    "function": {"name": "look_up", "description": "d", "parameters": SCHEMA, "strict": True},
}
FORM: Json = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
OUTPUT: Json = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}
"""An invocation's `output_schema`, of any shape: a vendor's strict ones must close every object."""
ASKED: Json = {
    "tools": [TOOL],
    "response_format": FORM,
    "prompt_cache_key": "k",
    "metadata": {"a": "b"},
    "store": False,
    "logprobs": True,
    "top_logprobs": 2,
    "service_tier": "auto",
    "user": "u",
    "safety_identifier": "s",
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "function": {"name": "look_up"}},
    "temperature": 0.5,
    "top_p": 0.75,
    "presence_penalty": 0.25,
    "frequency_penalty": -0.25,
    "logit_bias": {"50256": -100},
    "stop": ["END"],
    "seed": 7,
    "reasoning_effort": "low",
    "verbosity": "high",
    "prediction": {"type": "content", "content": "Certainly."},
    "a_field_of_tomorrow": {"a": [1]},
}
SAID = {
    CHAT: tuple(ASKED),
    MESSAGES: ("tools", "response_format", "user", "temperature", "top_p", "stop"),
    INVOCATIONS: (
        "tools", "response_format", "tool_choice", "temperature", "top_p", "stop", "seed", "reasoning_effort",
    ),
}  # fmt: skip
"""What each mouth has words for."""


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    return launch_shared(bundle.document(purpose("plain", remote("engine", vendor.port), tools=["look_up"])))


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_asked_arrives(stream: bool, mouth: Mouth, site: Site, vendor: Vendor) -> None:
    asked = {name: ASKED[name] for name in SAID[mouth]}
    wanted = asked | ({"response_format": OUTPUT} if mouth is INVOCATIONS else {})
    vendor.replies[:] = [flow(text("Certainly."), END, USED, DONE)] if stream else [answer('{"a": 1}')]
    assert site.caller.ask("plain", stream=stream, **asked).status_code == 200
    sent = vendor.requests[-1].body
    assert {name: sent.get(name) for name in asked} == wanted


SCORED: Json = {
    "content": [{"token": "Certainly.", "logprob": -0.5, "bytes": None, "top_logprobs": []}],
    "refusal": None,
}
MODERATED: Json = {
    "type": "moderation_results",
    "model": "omni",
    "results": [{"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.5}}],
}
EXTRAS: Json = {
    "system_fingerprint": "fp_1",
    "service_tier": "flex",
    "moderation": {"input": MODERATED, "output": {"type": "error", "code": "timeout"}},
}
KEPT: Json = EXTRAS | {"metadata": {"a": "b"}}


def test_what_is_answered_comes_back_whole(site: Site, vendor: Vendor) -> None:
    made = completion(None, refusal="I will not.") | KEPT
    made["choices"][0]["logprobs"] = SCORED
    vendor.replies[:] = [says(200, made)]
    body = site.caller.ask("plain").json()
    assert {name: body[name] for name in KEPT} == KEPT
    [choice] = body["choices"]
    assert choice["message"]["refusal"] == "I will not."
    assert choice["logprobs"] == SCORED


def test_what_is_answered_comes_back_in_a_stream(site: Site, vendor: Vendor) -> None:
    choice = {"index": 0, "delta": {"content": "Certainly."}, "finish_reason": None, "logprobs": SCORED}
    pieces = (chunk({}, choices=[choice], **EXTRAS), chunk({"refusal": "No."}, **EXTRAS), chunk({}, "stop", **EXTRAS))
    vendor.replies[:] = [flow(*pieces, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        first, second, *_ = (json.loads(event) for event in streamed.rest() if event != "[DONE]")
    assert {name: first[name] for name in EXTRAS} == EXTRAS
    assert first["choices"][0]["logprobs"] == SCORED
    assert second["choices"][0]["delta"]["refusal"] == "No."


@every_mouth
def test_a_refusal_of_the_models_comes_back(mouth: Mouth, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [says(200, completion(None, refusal="I will not."))]
    body = checks.answered(site.caller, site.caller.ask("plain"), capability="engine", cost=COST)
    if mouth is MESSAGES:
        assert body["stop_reason"] == "refusal"
        assert body["content"] == [{"type": "text", "text": "I will not."}]
    else:
        assert (body["choices"][0]["message"] if mouth is CHAT else body)["refusal"] == "I will not."
