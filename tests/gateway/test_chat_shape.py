"""The shape of a chat body: what the clients send passes, what is wrong is named without its value."""

import json

import pytest

from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import ModelApi
from terraflow.gateway.mouths.openai_chat import parse
from terraflow.ports.upstream import ModelRequest

HELLO = [{"role": "user", "content": "hello"}]


def parsed(**body: object) -> ModelRequest | Refuse:
    return parse(json.dumps({"messages": HELLO, **body}).encode())


def problem(**body: object) -> Problem:
    found = parsed(**body)
    assert isinstance(found, Refuse)
    assert found.reason is ModelApi.INVALID_REQUEST
    return found.problems[0]


def test_the_whole_surface_passes_and_unknown_fields_travel_on() -> None:
    body = {
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 7,
        "n": 2,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 3,
        "reasoning_effort": "low",
        "metadata": {"a": "b"},
        "store": False,
        "user": "u",
        "temperature": 1,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "vendor_field": {"kept": [1, 2.5]},
    }
    found = parse(json.dumps(body).encode())
    assert isinstance(found, ModelRequest)
    taken = {"model", "stream", "stream_options", "max_completion_tokens"}
    assert found.document == {key: value for key, value in body.items() if key not in taken}
    assert (found.stream, found.include_usage, found.output_tokens_max, found.choices) == (True, True, 7, 2)
    assert (found.tool_names, found.output_schema, found.model) == (("f",), {"type": "object"}, "m")


def test_every_way_to_offer_a_tool_is_seen() -> None:
    found = parsed(
        tools=[{"type": "custom", "custom": {"name": "c"}}], functions=[{"name": "old"}], web_search_options={}
    )
    assert isinstance(found, ModelRequest)
    assert found.tool_names == ("c", "old", "web_search")


NAMED = {"name": "chosen"}


@pytest.mark.parametrize(
    "choice",
    [
        {"tool_choice": {"type": "function", "function": NAMED}},
        {"tool_choice": {"type": "custom", "custom": NAMED}},
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": NAMED}, {"type": "function", "name": "chosen"}],
                },
            }
        },
        {"function_call": NAMED},
    ],
    ids=["function", "custom", "allowed", "old"],
)
def test_a_tool_that_is_only_chosen_is_seen(choice: dict[str, object]) -> None:
    found = parsed(**choice)
    assert isinstance(found, ModelRequest)
    assert found.tool_names == ("chosen",)
    offered = parsed(tools=[{"type": "function", "function": NAMED}], **choice)
    assert isinstance(offered, ModelRequest)
    assert offered.tool_names == ("chosen",)


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"messages": []}, "messages", "must be array of length >= 1"),
        ({"messages": "canary-value"}, "messages", "must be array"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "is required"),
        ({"messages": [{"role": "canary-value", "content": "x"}]}, "messages[0].role", None),
        ({"messages": [{"role": "user", "content": [{"type": "canary-value"}]}]}, "messages[0].content[0].type", None),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "is required"),
        ({"temperature": 3}, "temperature", "must be number <= 2.0"),
        ({"max_tokens": 0}, "max_tokens", "must be integer >= 1"),
        ({"n": "canary-value"}, "n", "must be integer or null"),
        ({"metadata": {"canary-value": 3}}, "metadata[...]", "must be string"),
        ({"tools": [{"type": "canary-value"}]}, "tools[0].type", None),
        ({"stream_options": {"include_usage": True}}, "stream_options", "is allowed only with stream"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "must not contradict max_completion_tokens"),
    ],
)
def test_what_is_wrong_is_named_by_path_and_rule_alone(body: dict[str, object], field: str, rule: str | None) -> None:
    found = problem(**body)
    assert found.field == field
    assert rule is None or found.rule == rule
    assert "canary" not in repr(found)


@pytest.mark.parametrize("raw", [b"[]", b'"text"', b"null", b"3", b"{}", b"{", b"\xff"])
def test_what_is_no_chat_body_at_all(raw: bytes) -> None:
    assert isinstance(parse(raw), Refuse)
