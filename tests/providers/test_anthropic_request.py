"""A request's fields in Anthropic's words: golden pairs after the API reference, and each without an equivalent."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.core.chat_fields import CHAT_FIELDS
from terraflow.ports.upstream import Failure
from tests.providers.anthropic_words import (
    MARK,
    PARAMETERS,
    SENT_TOOL,
    TOOL,
    body_of,
    refused,
    translated,
)

FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"stream": True}, {"stream": True}),
    ({"stop": "END"}, {"stop_sequences": ["END"]}),
    ({"stop": ["A", "B"]}, {"stop_sequences": ["A", "B"]}),
    ({"temperature": 0.3, "top_p": 0.9}, {"temperature": 0.3, "top_p": 0.9}),
    ({"top_k": 5}, {"top_k": 5}),
    ({"user": "u-1"}, {"metadata": {"user_id": "u-1"}}),
    ({"safety_identifier": "s-1"}, {"metadata": {"user_id": "s-1"}}),
    ({"user": "x", "safety_identifier": "x"}, {"metadata": {"user_id": "x"}}),
    ({"service_tier": "auto"}, {"service_tier": "auto"}),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}),
    ({"cache_control": MARK}, {"cache_control": MARK}),
    ({"tools": [TOOL]}, {"tools": [SENT_TOOL]}),
    (
        {"tools": [{"type": "function", "function": {"name": "now"}, "cache_control": MARK}]},
        {"tools": [{"name": "now", "input_schema": {"type": "object", "properties": {}}, "cache_control": MARK}]},
    ),
    ({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [SENT_TOOL], "tool_choice": {"type": "auto"}}),
    ({"tools": [TOOL], "tool_choice": "none"}, {"tools": [SENT_TOOL], "tool_choice": {"type": "none"}}),
    ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [SENT_TOOL], "tool_choice": {"type": "any"}}),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"tools": [SENT_TOOL], "tool_choice": {"type": "tool", "name": "weather"}},
    ),
    (
        {"tools": [TOOL], "parallel_tool_calls": False},
        {"tools": [SENT_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    (
        {"tools": [TOOL], "parallel_tool_calls": False, "tool_choice": "required"},
        {"tools": [SENT_TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    ),
    ({"tools": [TOOL], "parallel_tool_calls": True}, {"tools": [SENT_TOOL]}),
    ({"parallel_tool_calls": False, "tool_choice": "auto"}, {}),
    ({"response_format": {"type": "text"}}, {}),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "strict": True, "schema": PARAMETERS},
            }
        },
        {"output_config": {"format": {"type": "json_schema", "schema": PARAMETERS}}},
    ),
    ({"n": 1, "store": False, "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0.0}, {}),
    ({"presence_penalty": 0, "logit_bias": {}, "modalities": ["text"], "verbosity": "medium", "metadata": {}}, {}),
    ({"seed": None, "logprobs": None, "audio": None, "prediction": None}, {}),
]


@pytest.mark.parametrize(("fields", "sent"), FIELDS, ids=lambda value: ",".join(value) or "nothing")
def test_a_field_in_their_words(fields: dict[str, Any], sent: dict[str, Any]):
    assert body_of(**fields) == sent


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"seed": 7}, "seed"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 0}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logit_bias": {"50256": -100}}, "logit_bias"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ({"presence_penalty": -0.5}, "presence_penalty"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "alloy"}}, "audio"),
    ({"prediction": {"type": "content"}}, "prediction"),
    ({"store": True}, "store"),
    ({"metadata": {"a": "b"}}, "metadata"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"verbosity": "low"}, "verbosity"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"moderation": {}}, "moderation"),
    ({"prompt_cache_key": "k"}, "prompt_cache_key"),
    ({"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options"),
    ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format"),
    ({"temperature": 1.5}, "temperature"),
    ({"user": "a", "safety_identifier": "b"}, "user"),
    ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"my card 4111 1111 1111 1111": 1}, "unknown field"),
    ({"thinking": "much"}, "unknown field"),
    ({"thinking": {"type": "enabled", "budget_tokens": True}}, "unknown field"),
    ({"thinking": {"type": "adaptive"}, "reasoning_effort": "low"}, "reasoning_effort"),
    ({"tools": [TOOL | {"new": 1}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "new": 1}}]}, "tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}, "new": 1}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather", "new": 1}}}, "tool_choice"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}, "new": 1}},
        "response_format",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "new": 1}}},
        "response_format",
    ),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_field_without_an_equivalent_is_refused_before_anything_is_sent(fields: dict[str, Any], named: str):
    failed = refused(**fields)
    assert failed.failure is Failure.UNSUPPORTED_FIELD
    assert failed.fields == (named,)


def test_several_refused_fields_are_all_named_and_unknown_ones_once():
    assert refused(seed=1, x1=1, x2=2, logprobs=True).fields == ("seed", "unknown field", "logprobs")


def test_every_known_field_is_taken_or_refused():
    beside = {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "messages"}
    spoken_of = {name for fields, _ in FIELDS for name in fields} | {name for fields, _ in REFUSED for name in fields}
    assert CHAT_FIELDS - beside <= spoken_of


@pytest.mark.parametrize("name", ["bash_20250124", "text_editor_20250728", "memory_20250818"])
def test_tools_that_anthropic_defines_and_the_caller_runs_go_back_as_they_came(name: str) -> None:
    tool = {"type": name, "name": "it", "cache_control": MARK, "max_characters": 5}
    assert translated(tools=[tool])["tools"] == [tool]


def test_a_tools_own_fields_go_back() -> None:
    own = {
        "defer_loading": True,
        "allowed_callers": ["direct"],
        "input_examples": [{"city": "Oslo"}],
        "eager_input_streaming": True,
    }
    assert translated(tools=[TOOL | own])["tools"] == [SENT_TOOL | own]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"tools": [{"type": "code_execution_20260521", "name": "code_execution"}]}, "tools"),
        ({"output_config": {"effort": "extreme"}}, "unknown field"),
        ({"output_config": {"effort": "low", "format": {}}}, "unknown field"),
        ({"output_config": {"effort": "low"}, "reasoning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_what_cannot_be_told_of_them_is_refused(fields: dict[str, Any], field: str) -> None:
    failure = refused(**fields)
    assert (failure.failure, failure.fields) == (Failure.UNSUPPORTED_FIELD, (field,))


def test_what_a_schema_is_for_is_told_with_it() -> None:
    schema = {"type": "object", "properties": {}}

    def told(schema: dict[str, Any]) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "a", "description": "d", "schema": schema}}
        return translated(response_format=form)["output_config"]["format"]["schema"]

    assert told(schema) == schema | {"description": "d"}
    assert told(schema | {"description": "own"}) == schema | {"description": "own"}
    assert "description" not in schema
