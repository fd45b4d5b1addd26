"""Requests in Anthropic's words: golden pairs after the API reference, and every field that has no equivalent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from terraflow.contracts.capability import Dialect
from terraflow.core.chat_fields import CHAT_FIELDS
from terraflow.ports.upstream import Failure, ProviderFailure
from terraflow.providers.anthropic_request import translate_request
from terraflow.providers.anthropic_thinking import Thinking
from tests.providers.sample import call

USER = {"role": "user", "content": "Say hello."}
SAID = {"role": "user", "content": [{"type": "text", "text": "Say hello."}]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": PARAMETERS, "strict": True},
}
SENT_TOOL = {"name": "weather", "description": "d", "input_schema": PARAMETERS, "strict": True}
MARK = {"type": "ephemeral", "ttl": "5m"}
CALLED = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def translated(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> dict[str, Any]:
    asked = call(**fields)
    return translate_request("claude", Thinking(dialect), asked, stream=asked.request.stream)


def body_of(**fields: Any) -> dict[str, Any]:
    """The body without what every request has."""
    body = translated(**fields)
    assert (body.pop("model"), body.pop("max_tokens"), body.pop("messages")) == ("claude", 1_000, [SAID])
    return body


def refused(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        translated(dialect, **fields)
    assert not caught.value.reached
    assert caught.value.__context__ is None
    return caught.value


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


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **more}}]}


def file(**fields: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "file", "file": fields}]}


def block(**fields: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [fields]}]


TURNS: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
    ([USER], [SAID]),
    ([USER, USER], [{"role": "user", "content": [*SAID["content"], *SAID["content"]]}]),
    (
        [image("data:image/png;base64,aGk=")],
        block(type="image", source={"type": "base64", "media_type": "image/png", "data": "aGk="}),
    ),
    (
        [image("https://example.com/a.png", detail="auto")],
        block(type="image", source={"type": "url", "url": "https://example.com/a.png"}),
    ),
    (
        [file(file_data="data:application/pdf;base64,aGk=", filename="a.pdf")],
        block(
            type="document",
            source={"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            title="a.pdf",
        ),
    ),
    (
        [file(file_data="data:text/plain;base64,aMOp")],
        block(type="document", source={"type": "text", "media_type": "text/plain", "data": "hé"}),
    ),
    (
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a", "cache_control": MARK}, {"type": "text", "text": ""}],
            }
        ],
        block(type="text", text="a", cache_control=MARK),
    ),
    (
        [{"role": "user", "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}]}],
        block(type="text", text="a", cache_control={"type": "ephemeral"}),
    ),
    ([{**USER, "cache_control": MARK}], block(type="text", text="Say hello.", cache_control=MARK)),
    (
        [USER, {"role": "assistant", "content": "", "refusal": "No."}, USER],
        [SAID, {"role": "assistant", "content": [{"type": "text", "text": "No."}]}, SAID],
    ),
]


@pytest.mark.parametrize(("messages", "turns"), TURNS, ids=range(len(TURNS)))
def test_messages_in_their_words(messages: list[dict[str, Any]], turns: list[dict[str, Any]]):
    body = translated(messages=messages)
    assert body["messages"] == turns
    assert "system" not in body


def test_system_messages_become_the_system_prompt_in_order():
    messages = [
        {"role": "system", "content": "one"},
        {"role": "developer", "content": [{"type": "text", "text": "two", "cache_control": MARK}]},
        USER,
        {"role": "system", "content": "three"},
        {"role": "assistant", "content": "ok"},
    ]
    body = translated(messages=messages)
    assert body["system"] == [
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two", "cache_control": MARK},
        {"type": "text", "text": "three"},
    ]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"]


def test_a_conversation_with_thinking_and_parallel_tools_goes_back_as_it_came():
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    messages = [
        USER,
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "hm",
            "thinking_blocks": [{"index": 0, **thought}, {"index": 1, "type": "redacted_thinking", "data": "x"}],
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "a", "arguments": '{"x": [1]}'}},
                {"id": "t2", "type": "function", "function": {"name": "b", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "two"}], "cache_control": MARK},
        {"role": "user", "content": "And now?"},
    ]
    assert translated(messages=messages)["messages"] == [
        SAID,
        {
            "role": "assistant",
            "content": [
                thought,
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "a", "input": {"x": [1]}},
                {"type": "tool_use", "id": "t2", "name": "b", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "two"}],
                    "cache_control": MARK,
                },
                {"type": "text", "text": "And now?"},
            ],
        },
    ]


@pytest.mark.parametrize("signature", [{}, {"signature": None}, {"signature": ""}], ids=["none", "null", "empty"])
def test_thinking_that_another_vendor_left_unsigned_stays_behind(signature: dict[str, Any]):
    """Anthropic's API refuses the whole conversation for it."""
    signed = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    said: dict[str, Any] = {"role": "assistant", "content": "ok"}
    blocks = [{"type": "thinking", "thinking": "foreign"} | signature]
    assert translated(messages=[USER, said | {"thinking_blocks": blocks}])["messages"][1]["content"] == [
        {"type": "text", "text": "ok"}
    ]
    call = {"id": "t", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    order = [{"type": kind} for kind in ("tool_use", "thinking", "thinking")] + [{"type": "text", "characters": 2}]
    mixed = said | {"thinking_blocks": [*blocks, signed], "tool_calls": [call], "block_order": order}
    assert [block["type"] for block in translated(messages=[USER, mixed])["messages"][1]["content"]] == [
        "tool_use",
        "thinking",
        "text",
    ]
    assert translated(messages=[USER, {"role": "assistant", "thinking_blocks": blocks}])["messages"] == [SAID]


@pytest.mark.parametrize(
    ("message", "below"),
    [
        ({**USER, "name": "bob"}, "name"),
        ({"role": "function", "name": "f", "content": "x"}, "name"),
        ({"role": "function", "content": "x"}, "role"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "audio"),
        ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, "function_call"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "c", "input": "x"}}]},
            "tool_calls[].type",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
            "content[].type",
        ),
        (image("http://example.com/a.png"), "content[].image_url.url"),
        (image("data:image/tiff;base64,aGk="), "content[].image_url.url"),
        (image("https://example.com/a.png", detail="high"), "content[].image_url.detail"),
        (file(file_id="file-1"), "content[].file"),
        (file(file_data="data:application/zip;base64,aGk="), "content[].file.file_data"),
        (file(file_id="file-1", file_data="data:application/pdf;base64,aGk="), "content[].file"),
        # What vendors think of tomorrow is refused, and not left out.
        ({**USER, "new": 1}, "unknown field"),
        ({"role": "system", "content": "x", "new": 1}, "unknown field"),
        ({"role": "tool", "tool_call_id": "t", "content": "x", "new": 1}, "unknown field"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "new": 1}]}, "content[].unknown field"),
        (image("https://example.com/a.png", new=1), "content[].image_url.unknown field"),
        ({"role": "assistant", "tool_calls": [CALLED | {"new": 1}]}, "tool_calls[].unknown field"),
        (
            {"role": "assistant", "tool_calls": [CALLED | {"function": {"name": "f", "arguments": "", "new": 1}}]},
            "tool_calls[].unknown field",
        ),
    ],
    ids=lambda m: str(m)[:60],
)
def test_a_message_without_an_equivalent_is_refused(message: dict[str, Any], below: str):
    failed = refused(messages=[message])
    assert (failed.failure, failed.fields) == (Failure.UNSUPPORTED_FIELD, (f"messages[].{below}",))


def test_an_answer_may_be_sent_back_with_what_answers_have() -> None:
    said = {"role": "assistant", "content": "ok", "refusal": None, "audio": None, "function_call": None, "parsed": None}
    beside = {
        "annotations": [],
        "reasoning_content": "hm",
        "reasoning": "hm",
        "text_blocks": [],
        "tool_calls": [CALLED],
    }
    turn = translated(messages=[USER, said | beside])["messages"][1]["content"]
    assert [block["type"] for block in turn] == ["text", "tool_use"]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}, {"role": "assistant", "content": ""}],
    ],
)
def test_what_has_no_turn_goes_to_who_answers_such(messages: list[dict[str, Any]]):
    failed = refused(messages=messages)
    assert (failed.failure, failed.fields) == (Failure.UNSUPPORTED_FIELD, ("messages",))


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


@pytest.mark.parametrize(
    "message",
    [
        called("{"),
        called("[]"),
        file(file_data="data:text/plain;base64,/w=="),
        file(file_data="data:text/plain;base64,a"),
    ],
    ids=lambda m: str(m)[:100],
)  # fmt: skip
def test_content_that_cannot_be_said_is_the_callers(message: dict[str, Any]):
    assert refused(messages=[message]).failure is Failure.REJECTED_CONTENT


ADAPTIVE, BUDGETED = Dialect.CURRENT, Dialect.BUDGETED_THINKING


def adaptive(effort: str) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def budgeted(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


OFF = {"thinking": {"type": "disabled"}}
THINKING: list[tuple[Dialect, dict[str, Any], int | None, dict[str, Any]]] = [
    (ADAPTIVE, {}, None, {}),
    (ADAPTIVE, {"reasoning_effort": "none"}, 9_000, OFF),
    (ADAPTIVE, {"reasoning_effort": "minimal"}, None, adaptive("low")),
    (ADAPTIVE, {"reasoning_effort": "xhigh"}, None, adaptive("xhigh")),
    (ADAPTIVE, {"reasoning_effort": "high"}, 9_000, adaptive("medium")),
    (ADAPTIVE, {}, 20_000, adaptive("high")),
    (ADAPTIVE, {}, 100, OFF),
    (ADAPTIVE, {"thinking": {"type": "adaptive"}}, 9_000, adaptive("medium")),
    (ADAPTIVE, {"thinking": {"type": "adaptive"}}, None, {"thinking": {"type": "adaptive"}}),
    (BUDGETED, {}, None, {}),
    (BUDGETED, {}, 5_000, budgeted(5_000)),
    (BUDGETED, {}, 500, {}),
    (BUDGETED, {}, 50_000, budgeted(39_999)),
    (BUDGETED, {"reasoning_effort": "low"}, None, budgeted(2_048)),
    (BUDGETED, {"reasoning_effort": "high"}, 5_000, budgeted(5_000)),
    (BUDGETED, budgeted(9_000), 5_000, budgeted(5_000)),
    (BUDGETED, budgeted(3_000), None, budgeted(3_000)),
]


@pytest.mark.parametrize(("dialect", "fields", "budget", "sent"), THINKING, ids=range(len(THINKING)))
def test_how_much_it_may_think(dialect: Dialect, fields: dict[str, Any], budget: int | None, sent: dict[str, Any]):
    body = translated(dialect, output_tokens_max=40_000, reasoning_budget_tokens=budget, **fields)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent


def test_an_effort_that_does_not_fit_is_refused():
    assert refused(BUDGETED, output_tokens_max=1_024, reasoning_effort="high").fields == ("reasoning_effort",)
    assert refused(ADAPTIVE, reasoning_budget_tokens=100, reasoning_effort="low").fields == ("reasoning_effort",)


def test_effort_and_schema_share_the_output_settings():
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}}
    body = translated(response_format=form, reasoning_effort="low")
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": PARAMETERS}, "effort": "low"}


def test_the_callers_document_is_left_as_it_was():
    messages = [{**USER, "cache_control": MARK}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    before = repr(messages)
    translated(messages=messages)
    assert repr(messages) == before


# What other mouths put into extension fields.

PLAIN = {"type": "text", "media_type": "text/plain", "data": "a"}
DOCUMENT = {"type": "document", "source": PLAIN, "title": "t", "context": "c"}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.parametrize(
    "part",
    [
        DOCUMENT,
        FOUND,
        {**DOCUMENT, "cache_control": MARK},
        {**DOCUMENT, "citations": {"enabled": True}},
        {"type": "text", "text": "so", "citations": [{"type": "char_location", "cited_text": "a"}]},
    ],
)
def test_documents_and_search_results_go_back_as_they_came(part: dict[str, Any]) -> None:
    assert translated(messages=[{"role": "user", "content": [part]}])["messages"][0]["content"] == [part]
    result = {"role": "tool", "tool_call_id": "t", "content": [part]}
    assert translated(messages=[result])["messages"][0]["content"][0]["content"] == [part]


@pytest.mark.parametrize("ttl", ["5m", "1h"])
@pytest.mark.parametrize(
    "part",
    [
        FOUND | {"content": [{"type": "text", "text": "a"}]},
        DOCUMENT | {"source": {"type": "content", "content": [{"type": "text", "text": "a"}]}},
    ],
    ids=lambda part: str(part["type"]),
)
def test_a_cache_mark_inside_a_block_is_one_as_well(part: dict[str, Any], ttl: str) -> None:
    marked = json.loads(json.dumps(part).replace('"text": "a"', f'"text": "a", "cache_control": {{"ttl": "{ttl}"}}'))
    inside = {"role": "user", "content": [marked]}
    result = {"role": "tool", "tool_call_id": "t", "content": [marked]}
    for message in (inside, result):
        if ttl == "5m":
            assert "cache_control" in json.dumps(translated(messages=[message]))
        else:
            assert refused(messages=[message]).fields == ("cache_control",)


def test_a_tool_that_failed_says_so() -> None:
    made = translated(messages=[{"role": "tool", "tool_call_id": "t", "content": "no", "is_error": True}])
    expected = {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}
    assert made["messages"][0]["content"] == [expected]


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


OWN_EFFORTS: list[tuple[Dialect, dict[str, Any], int | None, dict[str, Any]]] = [
    (ADAPTIVE, {"output_config": {"effort": "max"}}, None, {"output_config": {"effort": "max"}}),
    (ADAPTIVE, {"output_config": {"effort": "max"}}, 9_000, adaptive("medium")),
    (ADAPTIVE, {"output_config": {"effort": "low"}}, 9_000, adaptive("low")),
    (
        ADAPTIVE,
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}},
        9_000,
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "medium"}},
    ),
    (
        ADAPTIVE,
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        None,
        adaptive("high"),
    ),
    (
        ADAPTIVE,
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
        9_000,
        OFF | {"output_config": {"effort": "high"}},
    ),
    (BUDGETED, {"output_config": {"effort": "high"}}, None, {"output_config": {"effort": "high"}}),
    (BUDGETED, {"output_config": {"effort": "high"}}, 9_000, budgeted(9_000)),
]


@pytest.mark.parametrize(("dialect", "asked", "budget", "sent"), OWN_EFFORTS)
def test_an_effort_in_anthropics_own_form(
    dialect: Dialect, asked: dict[str, Any], budget: int | None, sent: dict[str, Any]
) -> None:
    body = translated(dialect, reasoning_budget_tokens=budget, output_tokens_max=100_000, **asked)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent


def test_a_calls_id_of_another_vendor_is_told_in_a_form_that_the_api_takes() -> None:
    said = ["functions.look_up:0", "functions.look_up.0", "call_abc-1", "é" * 30]
    calls = [{"id": one, "type": "function", "function": {"name": "look_up", "arguments": "{}"}} for one in said]
    results = [{"role": "tool", "tool_call_id": one, "content": "x"} for one in said]
    turns = translated(messages=[USER, {"role": "assistant", "tool_calls": calls}, *results])["messages"]
    ids = [block["id"] for block in turns[1]["content"]]
    assert ids == [block["tool_use_id"] for block in turns[2]["content"]]
    assert len(set(ids)) == 4
    assert ids[2] == "call_abc-1"
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)


def test_what_a_schema_is_for_is_told_with_it() -> None:
    schema = {"type": "object", "properties": {}}

    def told(schema: dict[str, Any]) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "a", "description": "d", "schema": schema}}
        return translated(response_format=form)["output_config"]["format"]["schema"]

    assert told(schema) == schema | {"description": "d"}
    assert told(schema | {"description": "own"}) == schema | {"description": "own"}
    assert "description" not in schema
