"""The extension fields of a neutral request in OpenAI's words: what stays behind, what is told, what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from terraflow.contracts.capability import Dialect
from terraflow.ports.upstream import Call, Failure, ProviderFailure
from terraflow.providers.openai_request import request_body
from terraflow.providers.openai_wire import ChunkParser, parse_answer
from tests.providers.sample import call

Json = dict[str, Any]

MARK = {"type": "ephemeral"}
USER = {"role": "user", "content": "Say hello."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def extended(**fields: Any) -> Call:
    asked = call(**fields)
    return msgspec.structs.replace(asked, request=msgspec.structs.replace(asked.request, extended=True))


def sent(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> Json:
    asked = extended(**fields)
    before = msgspec.json.encode(asked.request.document)
    body: Json = json.loads(request_body("m", dialect, asked, stream=False))
    assert msgspec.json.encode(asked.request.document) == before
    for field in ("model", "max_completion_tokens", "max_tokens"):
        body.pop(field, None)
    return body


def refused(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> tuple[str, ...]:
    with pytest.raises(ProviderFailure) as caught:
        sent(dialect, **fields)
    assert (caught.value.failure, caught.value.reached) == (Failure.UNSUPPORTED_FIELD, False)
    return caught.value.fields


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, {}),
        ({"cache_control": MARK}, {}),
        ({"thinking": {"type": "disabled"}}, {}),
        ({"thinking": {"type": "between_tools"}}, {}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1_024}}, {"reasoning_effort": "minimal"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9_000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 900_000}}, {"reasoning_effort": "xhigh"}),
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "xhigh"}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"tools": [TOOL | {"cache_control": MARK, "eager_input_streaming": True}]}, {"tools": [TOOL]}),
        ({"tools": [TOOL | {"defer_loading": False, "allowed_callers": ["direct"]}]}, {"tools": [TOOL]}),
        ({"temperature": 0.5, "stop": ["A"]}, {"temperature": 0.5, "stop": ["A"]}),
    ],
)
def test_what_is_told_in_other_words_or_needs_no_telling(fields: Json, told: Json) -> None:
    assert sent(**fields) == {"messages": [USER]} | told


def test_a_turn_of_nothing_but_thoughts_is_none_to_openai() -> None:
    """It refuses a message without content and without calls."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    turn = {"role": "assistant", "content": None, "thinking_blocks": [thought]}
    messages: list[Json] = [USER, turn, USER]
    assert sent(messages=messages)["messages"] == [USER, USER]
    kept = {"role": "assistant", "content": None, "reasoning_content": "hm"}
    assert sent(Dialect.SELF_HOSTED, messages=messages)["messages"] == [USER, kept, USER]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"top_k": 5}, "top_k"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools"),
        ({"tools": [TOOL | {"allowed_callers": ["code_execution_20260120"]}]}, "tools"),
        ({"tools": [TOOL | {"input_examples": [{"a": 1}]}]}, "tools"),
        ({"tools": [TOOL | {"max_uses": 1}]}, "tools"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
            "messages[].content[].type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[].content[].type"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "x", "content": [{"type": "search_result"}]}]},
            "messages[].content[].type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x", "citations": [{}]}]}]},
            "messages[].content[].citations",
        ),
    ],
)
def test_what_openai_has_no_words_for_is_refused(fields: Json, named: str) -> None:
    assert refused(**fields) == (named,)


def test_engines_take_top_k() -> None:
    assert sent(Dialect.SELF_HOSTED, top_k=5)["top_k"] == 5


def test_a_conversation() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    function = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}, image]},
        {
            "role": "assistant",
            "content": "so",
            "thinking_blocks": [thought, {"type": "redacted_thinking", "data": "x"}],
            "tool_calls": [function | {"cache_control": MARK}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "no such file", "is_error": True, "cache_control": MARK},
        {"role": "tool", "tool_call_id": "t2", "content": [image], "is_error": True},
    ]
    told: list[Json] = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, image]},
        {"role": "assistant", "content": "so", "tool_calls": [function]},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: no such file"},
        {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "Error: "}, image]},
    ]
    shown = {"role": "user", "content": [{"type": "text", "text": "Result of t2:"}, image]}
    failed = {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "Error: "}]}
    assert sent(messages=messages)["messages"] == [*told[:3], failed, shown]
    told[1]["reasoning_content"] = "hm"
    assert sent(Dialect.SELF_HOSTED, messages=messages)["messages"] == told


@pytest.mark.parametrize("said", ["and now?", [{"type": "text", "text": "and now?"}], None])
def test_what_tools_gave_beside_text_stands_before_what_the_user_says_next(said: Any) -> None:
    """OpenAI's description has nothing but text in a tool's message."""
    picture: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    words: Json = {"type": "text", "text": "a cat"}

    def result(call: str, *parts: Json) -> Json:
        return {"role": "tool", "tool_call_id": call, "content": list(parts)}

    next_turn = {"role": "assistant", "content": "I see."} if said is None else {"role": "user", "content": said}
    results = [result("t1", words, picture), result("t2", picture, picture), result("t3", words)]
    told = sent(messages=[{"role": "user", "content": "look"}, *results, next_turn])["messages"]
    assert told[1:4] == [result("t1", words), result("t2") | {"content": "(attached below)"}, result("t3", words)]
    shown = [
        {"type": "text", "text": "Result of t1:"},
        picture,
        {"type": "text", "text": "Result of t2:"},
        picture,
        picture,
    ]
    if said is None:
        assert told[4:] == [{"role": "user", "content": shown}, next_turn]
    else:
        assert told[4:] == [{"role": "user", "content": [*shown, {"type": "text", "text": "and now?"}]}]


def test_what_tools_gave_is_named_by_the_id_that_the_call_is_told_under() -> None:
    long = f"chatcmpl-tool-{'0' * 32}"
    called: Json = {"id": long, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    picture: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    result: Json = {"role": "tool", "tool_call_id": long, "content": [picture]}
    _, calls, told, shown = sent(messages=[USER, {"role": "assistant", "tool_calls": [called]}, result])["messages"]
    named = told["tool_call_id"]
    assert long != named == calls["tool_calls"][0]["id"]
    assert shown["content"][0]["text"] == f"Result of {named}:"


def test_a_request_in_openais_own_shape_travels_as_it_is() -> None:
    fields: Json = {"thinking": {"type": "enabled", "budget_tokens": 9_000}, "top_k": 5, "cache_control": MARK}
    body = json.loads(request_body("m", Dialect.CURRENT, call(**fields), stream=False))
    assert {key: body[key] for key in fields} == fields


@pytest.mark.parametrize("name", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize(("said", "told"), [("END", "END"), (128_009, None), (None, None)])
def test_the_stop_sequence_that_an_engine_names_stands_beside_its_answer(
    name: str, said: Any, told: str | None
) -> None:
    choice: Json = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop", name: said}
    answer = parse_answer(json.dumps({"choices": [choice]}).encode(), call())
    assert answer.stop_sequence == told
    assert answer.choices == [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]
    piece: Json = {"index": 0, "delta": {}, "finish_reason": "stop", name: said}
    chunk = ChunkParser(call()).parse(json.dumps({"choices": [piece]}).encode())
    assert chunk is not None
    assert chunk.stop_sequence == told
    assert chunk.choices == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


@pytest.mark.parametrize("dialect", [Dialect.CURRENT, Dialect.SELF_HOSTED])
def test_a_tool_without_arguments_has_a_schema_that_openai_takes(dialect: Dialect) -> None:
    """It answers 400, "object schema missing properties", for what every other vendor takes."""
    bare: Json = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
    full: Json = {
        "type": "function",
        "function": {"name": "at", "parameters": {"type": "object", "properties": {"a": {}}}},
    }
    loose: Json = {"type": "function", "function": {"name": "any", "parameters": {"anyOf": [{"type": "object"}]}}}
    told = {"type": "object", "properties": {}} if dialect is Dialect.CURRENT else {"type": "object"}
    tools = sent(dialect, tools=[bare, full, loose])["tools"]
    assert tools == [{"type": "function", "function": {"name": "now", "parameters": told}}, full, loose]
    assert bare["function"]["parameters"] == {"type": "object"}


def test_a_users_id_that_openai_finds_too_long_is_told_as_its_digest() -> None:
    """Agents send device, account and session in one: 150 characters, where OpenAI takes 64."""
    long = {name: f"user_{name * 64}_account__session_{name * 36}" for name in "ab"}
    told = {name: sent(user=said)["user"] for name, said in long.items()}
    assert len(set(told.values())) == 2
    assert all(len(said) <= 64 for said in told.values())
    assert sent(user=long["a"])["user"] == told["a"]
    assert sent(user="u" * 64)["user"] == "u" * 64
    assert sent(Dialect.SELF_HOSTED, user=long["a"])["user"] == long["a"]


LONG = [f"mcp__plugin_a-server-of-somebody__{'look_up_' * 5}{n}" for n in "ab"]
"""Names as agents make them, of which OpenAI takes 64 characters."""


def _named(name: str) -> Json:
    return {"type": "function", "function": {"name": name}}


def _tools() -> list[Json]:
    schema: Json = {"type": "object", "properties": {}}
    return [{"type": "function", "function": {"name": name, "parameters": schema}} for name in (*LONG, "short")]


def _conversation() -> list[Json]:
    calls = [
        {"id": name[-1], "type": "function", "function": {"name": name, "arguments": "{}"}} for name in (*LONG, "short")
    ]
    return [USER, {"role": "assistant", "content": None, "tool_calls": calls}]


def test_a_tools_name_that_openai_finds_too_long_is_told_shorter_wherever_it_stands() -> None:
    asked: Json = {"tools": _tools(), "messages": _conversation(), "tool_choice": _named(LONG[1])}
    told = sent(**asked)
    names = [tool["function"]["name"] for tool in told["tools"]]
    assert len(set(names)) == 3
    assert names[2] == "short"
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert [made["function"]["name"] for made in told["messages"][1]["tool_calls"]] == names
    assert told["tool_choice"] == _named(names[1])
    assert sent(Dialect.SELF_HOSTED, **asked) == asked
    assert sent(messages=_conversation())["messages"] == told["messages"], "of tools that are offered no more, too"


def test_what_it_calls_is_heard_under_the_tools_own_name() -> None:
    asked = extended(tools=_tools())
    body = json.loads(request_body("m", Dialect.CURRENT, asked, stream=False))
    names = [tool["function"]["name"] for tool in body["tools"]]
    calls = [_named(name) | {"id": name[-1]} for name in names]
    choice: Json = {"index": 0, "message": {"tool_calls": calls}, "finish_reason": "tool_calls"}
    answer = parse_answer(json.dumps({"choices": [choice]}).encode(), asked)
    heard = [made["function"]["name"] for made in answer.choices[0]["message"]["tool_calls"]]
    assert heard == [*LONG, "short"]
    parser, heard = ChunkParser(asked), []
    for at, made in enumerate(calls):
        delta = {"tool_calls": [made | {"index": at}]}
        chunk = parser.parse(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode())
        assert chunk is not None
        heard += [piece["function"]["name"] for piece in chunk.choices[0]["delta"]["tool_calls"]]
    assert heard == [*LONG, "short"]
