"""What a model is sent of Anthropic's Messages: to Anthropic what the caller said, to others the same in their words or
nothing; and every text of it is scanned."""

from __future__ import annotations

import json
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote, sim
from tests.harness.caller import CANARY, Caller, headers_of
from tests.harness.checks import Checks
from tests.harness.claude import anthropic_at
from tests.harness.mouths import MESSAGES
from tests.harness.upstreams import COST
from tests.providers.vendor import Vendor

CARD = "4111 1111 1111 1111"
SCHEMA: Json = {"type": "object", "properties": {"sum": {"type": "integer"}}, "additionalProperties": False}
TOOL: Json = {"name": "look_up", "input_schema": {"type": "object"}}
CHAT_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
MARK = {"type": "ephemeral"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig=="}


@pytest.fixture(scope="module")
def caller(launch_shared: Launch, engine: Vendor, claude: Vendor) -> Caller:
    open_ai, other = remote("engine", engine.port), anthropic_at("claude", claude.port)
    site: Site = launch_shared(
        bundle.document(
            purpose("plain", open_ai, tools=["look_up", "bash"]),
            purpose("thinks", other, tools=["look_up", "bash"]),
            purpose("either", open_ai, other, fallback={"engine": ["claude"]}),
            purpose("internal", sim("inside"), data_classes=["public", "internal"], sensitive_types=[]),
        )
    )
    return site.caller


def body(**fields: Any) -> Json:
    """A body in Anthropic's own words."""
    return {"max_tokens": 100, "messages": [{"role": "user", "content": f"Hello {CANARY}"}]} | fields


def post(caller: Caller, workload: str, **fields: Any) -> Any:
    return caller.post(body(**fields), headers_of(workload), MESSAGES.path)


def test_what_anthropic_is_sent_is_what_the_caller_said(caller: Caller, claude: Vendor) -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "a"}
    asked: Json = {
        "max_tokens": 2_000,
        "system": [{"type": "text", "text": "be brief", "cache_control": MARK}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "cache_control": MARK},
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    {"type": "document", "source": plain, "title": "t", "context": "c", "cache_control": MARK},
                    {"type": "document", "source": plain, "title": "t"},
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
                    {
                        "type": "search_result",
                        "source": "s",
                        "title": "t",
                        "content": [{"type": "text", "text": "found"}],
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    THOUGHT,
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "t", "name": "look_up", "input": {"a": 1}, "cache_control": MARK},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "no such thing"}],
                        "is_error": True,
                        "cache_control": MARK,
                    },
                    {"type": "text", "text": "and now?"},
                ],
            },
        ],
        "tools": [
            TOOL | {"description": "d", "strict": True, "cache_control": MARK, "defer_loading": False},
            {"type": "bash_20250124", "name": "bash"},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["END"],
        "temperature": 1,
        "top_p": 0.95,
        "top_k": 5,
        "metadata": {"user_id": "u-1"},
        "service_tier": "standard_only",
        "thinking": {"type": "enabled", "budget_tokens": 1_500},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "cache_control": MARK,
    }
    response = caller.post(asked, headers_of("thinks"), MESSAGES.path)
    assert response.status_code == 200, response.text
    sent = claude.requests[-1].body
    result = asked["messages"][2]["content"][0]
    result["content"] = "no such thing"
    assert sent == asked | {"model": "claude-model"}


def test_what_an_engine_is_sent_is_the_same_in_openais_words(caller: Caller, engine: Vendor) -> None:
    use = {"type": "tool_use", "id": "t", "name": "look_up", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "gone", "is_error": True, "cache_control": MARK}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": MARK}]},
        {"role": "assistant", "content": [THOUGHT, use]},
        {"role": "user", "content": [result]},
    ]
    response = post(
        caller,
        "plain",
        system="be brief",
        messages=turns,
        tools=[TOOL],
        tool_choice={"type": "any"},
        thinking={"type": "enabled", "budget_tokens": 2_048},
        max_tokens=3_000,
    )
    assert response.status_code == 200, response.text
    sent = engine.requests[-1].body
    function = {"name": "look_up", "arguments": '{"a":1}'}
    called = {"id": "t", "type": "function", "function": function}
    assert sent == {
        "model": "engine-model",
        "max_tokens": 3_000,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "t", "content": "Error: gone"},
        ],
        "tools": [CHAT_TOOL],
        "tool_choice": "required",
        "reasoning_effort": "low",
    }


SEARCHED = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}


def test_what_a_vendor_has_no_words_for_goes_to_one_that_has(caller: Caller, checks: Checks) -> None:
    messages = [{"role": "user", "content": [SEARCHED]}]
    response = post(caller, "either", messages=messages)
    found = checks.raised(response)
    assert found is Governed.PROVIDER_ERROR_RECOVERED
    assert response.headers["x-terraflow-capability"] == "claude"
    alone = post(caller, "plain", messages=messages)
    facts = checks.refused(caller, alone, Governed.PROVIDER_REJECTED_REQUEST, detail="FIELD_NOT_SUPPORTED")
    assert facts["details"] == {"fields": ["messages[].content[].type"]}
    assert alone.json()["error"]["message"].endswith("Here: FIELD_NOT_SUPPORTED: messages[].content[].type.")


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ({"messages": [{"role": "user", "content": "x", "new": 1}]}, "messages[].unknown field"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "new": 1}]}]},
            "messages[].content[].unknown field",
        ),
        ({"tools": [CHAT_TOOL | {"new": 1}]}, "tools"),
    ],
    ids=["message", "part", "tool"],
)
def test_a_chats_field_inside_is_told_to_who_takes_it(
    where: Json, named: str, caller: Caller, engine: Vendor, checks: Checks
) -> None:
    """It is left out nowhere: the other vendor's route is passed over, or the request refused."""
    asked = {"messages": [{"role": "user", "content": "x"}]} | where
    told = caller.post(asked, headers_of("plain"))
    assert told.status_code == 200, told.text
    assert {name: engine.requests[-1].body[name] for name in asked} == asked
    refused = caller.post(asked, headers_of("thinks"))
    facts = checks.refused(caller, refused, Governed.PROVIDER_REJECTED_REQUEST, detail="FIELD_NOT_SUPPORTED")
    assert facts["details"] == {"fields": [named]}


def test_a_tool_that_anthropic_runs_is_told_to_nobody(caller: Caller, checks: Checks) -> None:
    tool = {"type": "web_search_20250305", "name": "look_up", "max_uses": 1}
    for workload in ("plain", "thinks"):
        response = post(caller, workload, tools=[tool])
        facts = checks.refused(caller, response, Governed.PROVIDER_REJECTED_REQUEST, detail="FIELD_NOT_SUPPORTED")
        assert facts["details"] == {"fields": ["tools"]}


def test_the_clients_own_headers_are_taken(caller: Caller, checks: Checks) -> None:
    head = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-api-key": caller.api_key}
    response = caller.post(body(), headers_of("plain") | head, MESSAGES.path)
    checks.answered(caller, response, capability="engine", cost=COST)


# The class of what a request holds.


@pytest.mark.parametrize(
    "fields",
    [
        {"system": CARD},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": CARD}]}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": CARD}}
                    ],
                }
            ]
        },
        {"messages": [{"role": "assistant", "content": [THOUGHT | {"thinking": CARD}]}]},
        {"messages": [{"role": "user", "content": [SEARCHED | {"title": CARD}]}]},
        {"messages": [{"role": "user", "content": CARD[:9]}, {"role": "user", "content": CARD[9:]}]},
        {"stop_sequences": [CARD]},
        {"metadata": {"user_id": CARD}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"description": CARD}}}},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
                    ],
                }
            ]
        },
    ],
    ids=["system", "tool-result", "document", "thinking", "search", "split", "stop", "user", "schema", "image"],
)
def test_every_text_that_would_reach_a_model_is_scanned(fields: Json, caller: Caller, checks: Checks) -> None:
    response = post(caller, "internal", **fields)
    checks.refused(caller, response, Governed.DATA_CLASS_NOT_PERMITTED, detail="class")
    assert CARD not in json.dumps(caller.evidence(response.headers["x-terraflow-request-id"]))
