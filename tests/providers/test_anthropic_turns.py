"""Messages in Anthropic's words: golden pairs after the API reference, and what in them has no equivalent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from terraflow.ports.upstream import Failure
from tests.providers.anthropic_words import (
    CALLED,
    MARK,
    SAID,
    USER,
    refused,
    translated,
)


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


def test_a_tools_result_may_name_its_tool_too() -> None:
    result = {"role": "tool", "tool_call_id": "t", "name": "weather", "content": "rain"}
    sent = {"type": "tool_result", "tool_use_id": "t", "content": "rain"}
    assert translated(messages=[result])["messages"] == [{"role": "user", "content": [sent]}]


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
