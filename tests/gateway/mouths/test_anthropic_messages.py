"""Messages bodies in neutral form: what each field becomes, what is refused and how it is named, what is scanned."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from terraflow.classify.surface import collect
from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import ModelApi
from terraflow.gateway.mouths.anthropic_messages import MESSAGES, counted
from terraflow.gateway.mouths.attachments import FILE_TOKENS_MAX, IMAGE_TOKENS_MAX
from terraflow.gateway.mouths.messages_parse import TOOL_TOKENS_MAX, parse
from terraflow.ports.upstream import ModelRequest

Json = dict[str, Any]

HELLO = [{"role": "user", "content": "hello"}]
MARK = {"type": "ephemeral"}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"name": "f", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "a text"}
IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
CITED = {"type": "char_location", "cited_text": "said so", "document_index": 0}


def parsed(**body: object) -> ModelRequest:
    found = parse(json.dumps({"max_tokens": 50, "messages": HELLO} | body).encode())
    assert isinstance(found, ModelRequest), found
    assert found.extended
    return found


def problem(**body: object) -> Problem:
    found = parse(json.dumps({"max_tokens": 50, "messages": HELLO} | body).encode())
    assert isinstance(found, Refuse)
    assert found.reason is ModelApi.INVALID_REQUEST
    [only] = found.problems
    return only


# fmt: off
FIELDS: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"model": "m", "stream": True}, {}),
    ({"stop_sequences": ["A", "B"]}, {"stop": ["A", "B"]}),
    ({"stop_sequences": []}, {}),
    ({"temperature": 0.5, "top_p": 0.9, "top_k": 5}, {"temperature": 0.5, "top_p": 0.9, "top_k": 5}),
    ({"metadata": {"user_id": "u-1"}}, {"user": "u-1"}),
    ({"metadata": {}}, {}),
    ({"service_tier": "auto"}, {"service_tier": "auto"}),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}),
    ({"cache_control": MARK}, {"cache_control": MARK}),
    ({"speed": "standard"}, {}),
    ({"thinking": {"type": "disabled"}}, {"thinking": {"type": "disabled"}}),
    ({"thinking": {"type": "between_tools"}}, {"thinking": {"type": "between_tools"}}),
    ({"container": None, "diagnostics": None, "inference_geo": None, "thread": None}, {}),
    ({"thinking": {"type": "adaptive", "display": "omitted"}},
     {"thinking": {"type": "adaptive", "display": "omitted"}}),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
     {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ({"output_config": {"effort": "low"}}, {"output_config": {"effort": "low"}}),
    ({"tools": [TOOL]}, {"tools": [FUNCTION]}),
    ({"tools": []}, {}),
    ({"tools": [TOOL | {"type": "custom", "description": "d", "strict": True, "cache_control": MARK}]},
     {"tools": [{"type": "function", "cache_control": MARK,
                 "function": {"name": "f", "parameters": SCHEMA, "description": "d", "strict": True}}]}),
    ({"tools": [TOOL | {"defer_loading": True, "allowed_callers": ["direct"], "input_examples": [{"a": 1}],
                        "eager_input_streaming": True}]},
     {"tools": [FUNCTION | {"defer_loading": True, "allowed_callers": ["direct"], "input_examples": [{"a": 1}],
                            "eager_input_streaming": True}]}),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
    ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto"}),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    ({"tool_choice": {"type": "tool", "name": "f"}},
     {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ({"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
     {"tool_choice": "required", "parallel_tool_calls": False}),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
     {"tool_choice": "auto", "parallel_tool_calls": True}),
]
# fmt: on
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(("body", "neutral"), FIELDS)
def test_every_field_becomes_one_of_the_neutral_document(body: Json, neutral: Json) -> None:
    assert parsed(**body).document == {"messages": HELLO} | neutral


@pytest.mark.parametrize(
    "asked",
    [{"output_config": {"format": FORMAT}}, {"output_format": FORMAT}, {"output_config": {}, "output_format": FORMAT}],
)
def test_a_structured_output(asked: Json) -> None:
    found = parsed(**asked)
    wanted = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert found.document["response_format"] == {"type": "json_schema", "json_schema": wanted}
    assert found.output_schema == SCHEMA


def test_what_routes_streams_and_bounds_the_answer_stands_beside_the_document() -> None:
    found = parsed(model="m", stream=True, max_tokens=7, tools=[TOOL, {"type": "bash_20250124", "name": "bash"}])
    assert (found.model, found.stream, found.output_tokens_max, found.choices) == ("m", True, 7, 1)
    assert found.tool_names == ("f", "bash")
    assert found.attachment_tokens_max == TOOL_TOKENS_MAX


def neutral(*turns: Json, **body: object) -> list[Json]:
    return parsed(messages=list(turns), **body).messages


def said(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def text(words: str, **more: object) -> Json:
    return {"type": "text", "text": words} | more


@pytest.mark.parametrize("system", ["be brief", [text("be brief")]])
def test_a_plain_system_prompt_is_a_message_of_its_own(system: object) -> None:
    assert neutral(*HELLO, system=system) == [{"role": "system", "content": "be brief"}, *HELLO]


def test_cache_marks_stay_where_they_are() -> None:
    marked = text("long", cache_control=MARK)
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}, "cache_control": MARK}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok", "cache_control": MARK}
    image = {"type": "image", "source": IMAGE, "cache_control": MARK}
    made = neutral(said(marked, image), {"role": "assistant", "content": [use]}, said(result), system=[marked])
    assert made[0]["content"] == [marked]
    assert made[1]["content"][0] == marked
    assert made[1]["content"][1]["cache_control"] == MARK
    assert made[2]["tool_calls"][0]["cache_control"] == MARK
    assert made[3]["cache_control"] == MARK


def test_results_of_tools_become_messages_where_they_stand() -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [text("2"), {"type": "image", "source": IMAGE}],
            "is_error": True,
        },
        {"type": "tool_result", "tool_use_id": "c", "toolset_name": None},
    ]
    made = neutral(said(*results, text("and now?")))
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE['data']}"}}
    assert made == [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [text("2"), image], "is_error": True},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": "and now?"},
    ]


def test_an_assistants_turn_keeps_its_thinking_its_text_and_its_calls() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "é"}, "caller": {"type": "direct"}}
    use |= {"toolset_name": None}
    [made] = neutral({"role": "assistant", "content": [thinking, redacted, text("so"), use]})
    function = {"name": "f", "arguments": '{"a":"é"}'}
    assert made == {
        "role": "assistant",
        "content": "so",
        "thinking_blocks": [thinking, redacted],
        "tool_calls": [{"id": "t1", "type": "function", "function": function}],
    }


def test_citations_that_an_answer_had_go_back_with_it() -> None:
    cited = text("so", citations=[CITED])
    [made] = neutral({"role": "assistant", "content": [cited, text("plain", citations=None)]})
    assert made["content"] == [cited, text("plain")]


# fmt: off
DOCUMENTS: list[tuple[Json, Json, int]] = [
    ({"source": PDF, "title": "t.pdf"},
     {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF['data']}", "filename": "t.pdf"}},
     IMAGE_TOKENS_MAX),
    ({"source": PLAIN},
     {"type": "file", "file": {"file_data": f"data:text/plain;base64,{base64.b64encode(b'a text').decode()}"}},
     IMAGE_TOKENS_MAX),
    ({"source": PDF, "context": "c"}, {"type": "document", "source": PDF, "context": "c"}, IMAGE_TOKENS_MAX),
    ({"source": PLAIN, "citations": {"enabled": True}, "cache_control": MARK},
     {"type": "document", "source": PLAIN, "citations": {"enabled": True}, "cache_control": MARK}, IMAGE_TOKENS_MAX),
    ({"source": {"type": "url", "url": "https://x/y.pdf"}},
     {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}, FILE_TOKENS_MAX),
    ({"source": {"type": "content", "content": [text("a"), {"type": "image", "source": IMAGE}]}},
     {"type": "document", "source": {"type": "content", "content": [text("a"), {"type": "image", "source": IMAGE}]}},
     2 * IMAGE_TOKENS_MAX),
]
# fmt: on


@pytest.mark.parametrize(("block", "part", "tokens"), DOCUMENTS)
def test_documents_are_files_or_stay_what_they_are(block: Json, part: Json, tokens: int) -> None:
    found = parsed(messages=[said({"type": "document"} | block)])
    assert found.messages == [said(part)]
    assert found.attachment_tokens_max == tokens


def test_a_search_result_stays_what_it_is() -> None:
    found: Json = {"type": "search_result", "source": "https://x", "title": "t", "content": [text("a")]}
    assert neutral(said(found)) == [said(found)]


def test_an_image_counts_by_its_pixels() -> None:
    found = parsed(messages=[said({"type": "image", "source": IMAGE})])
    assert (found.inline_bytes, found.attachment_tokens_max) == (len(IMAGE["data"]), IMAGE_TOKENS_MAX)
    by_address = parsed(messages=[said({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}})])
    assert by_address.messages == [said({"type": "image_url", "image_url": {"url": "https://x/y.png"}})]


UNKNOWN = "must hold no unknown field"
NOTHING_ELSE = (
    "must hold nothing but cache_control, max_tokens, messages, metadata, model, output_config, output_format,"
    " service_tier, speed, stop_sequences, stream, system, temperature, thinking, tool_choice, tools, top_k, top_p"
)
REFUSED: list[tuple[Json, str, str]] = [
    ({"max_tokens": None}, "max_tokens", "must be integer"),
    ({"max_tokens": 0}, "max_tokens", "must be integer >= 1"),
    ({"messages": []}, "messages", "must be array of length >= 1"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "has a value that is not allowed"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "is required"),
    ({"messages": [said()]}, "messages[0].content", "must be array of length >= 1"),
    ({"messages": [said({"type": "text"})]}, "messages[0].content[0].text", "is required"),
    ({"messages": [said({"type": "sercet"})]}, "messages[0].content[0].type", "has a value that is not allowed"),
    ({"messages": [said(text("x", sercet=1))]}, "messages[0].content[0]", UNKNOWN),
    ({"messages": [said({"type": "image", "source": {"type": "file", "file_id": "sercet"}})]},
     "messages[0].content[0].source.type", "has a value that is not allowed"),
    ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "x"}]}]},
     "messages[0].content[0].type", "has a value that is not allowed"),
    ({"sercet": 1}, "body", NOTHING_ELSE),
    ({"container": "sercet"}, "body", NOTHING_ELSE),
    ({"sercet": None}, "body", NOTHING_ELSE),
    ({"n": 2}, "body", NOTHING_ELSE),
    ({"temperature": 1.5}, "temperature", "must be number <= 1.0"),
    ({"speed": "fast"}, "speed", "has a value that is not allowed"),
    ({"metadata": {"sercet": "x"}}, "metadata", UNKNOWN),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "is required"),
    ({"tools": [TOOL, TOOL | {"sercet": 1}]}, "tools[1]", UNKNOWN),
    ({"tools": [{"type": "browser_toolset_20260801"}]}, "tools[0].name", "is required"),
    ({"tool_choice": "auto"}, "tool_choice", "must be object or null"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2000},
     "thinking.budget_tokens", "must be less than max_tokens"),
    ({"output_format": FORMAT, "output_config": {"format": {"type": "json_schema", "schema": {}}}},
     "output_format", "must not contradict output_config.format"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field", "rule"), REFUSED)
def test_what_is_wrong_is_named_without_its_value(body: Json, field: str, rule: str) -> None:
    found = problem(**body)
    assert (found.field, found.rule) == (field, rule)


def test_the_bytes_are_read_strictly() -> None:
    for raw in (b"", b"[]", b'{"max_tokens": 1, "max_tokens": 2}', b'{"max_tokens": NaN}'):
        found = parse(raw)
        assert isinstance(found, Refuse) and found.problems[0].field == "body"


SEEN = [
    {"system": "NEEDLE"},
    {"system": [text("NEEDLE", cache_control=MARK)]},
    {"messages": [said(text("NEEDLE"))]},
    {"messages": [said({"type": "tool_result", "tool_use_id": "x", "content": [text("NEEDLE")]})]},
    {"messages": [said({"type": "tool_result", "tool_use_id": "NEEDLE", "content": "x"})]},
    {"messages": [said({"type": "document", "source": PLAIN | {"data": "NEEDLE"}})]},
    {"messages": [said({"type": "document", "source": PLAIN | {"data": "NEEDLE"}, "context": "x"})]},
    {"messages": [said({"type": "document", "source": PDF, "context": "NEEDLE"})]},
    {"messages": [said({"type": "document", "source": PDF, "title": "NEEDLE"})]},
    {"messages": [said({"type": "document", "source": {"type": "content", "content": [text("NEEDLE")]}})]},
    {"messages": [said({"type": "document", "source": {"type": "url", "url": "https://x/NEEDLE"}})]},
    {"messages": [said({"type": "search_result", "source": "x", "title": "t", "content": [text("NEEDLE")]})]},
    {"messages": [said({"type": "search_result", "source": "NEEDLE", "title": "t", "content": []})]},
    {"messages": [said({"type": "image", "source": {"type": "url", "url": "https://x/NEEDLE"}})]},
    {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "NEEDLE", "signature": "x"}]}]},
    {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {"NEEDLE": 1}}]}
        ]
    },
    {"messages": [{"role": "assistant", "content": [text("x", citations=[CITED | {"cited_text": "NEEDLE"}])]}]},
    {"tools": [TOOL | {"name": "NEEDLE"}]},
    {"tools": [TOOL | {"description": "NEEDLE"}]},
    {"tools": [TOOL | {"input_schema": {"type": "object", "properties": {"NEEDLE": {}}}}]},
    {"tools": [TOOL | {"input_examples": [{"a": "NEEDLE"}]}]},
    {"tools": [{"type": "bash_20250124", "name": "bash", "extra": "NEEDLE"}]},
    {"stop_sequences": ["NEEDLE"]},
    {"metadata": {"user_id": "NEEDLE"}},
    {"output_config": {"format": {"type": "json_schema", "schema": {"description": "NEEDLE"}}}},
]


@pytest.mark.parametrize("body", SEEN)
def test_every_text_that_is_sent_is_scanned(body: Json) -> None:
    surface = collect(parsed(**body).document)
    assert any("NEEDLE" in string for group in surface.groups for string in group)


SPLIT = [
    [text("4111 1111 "), text("1111 1111", cache_control=MARK)],
    [{"type": "document", "source": PDF, "title": "4111 1111 ", "context": "1111 1111"}],
    [{"type": "document", "source": PLAIN | {"data": "4111 1111 "}, "context": "1111 1111"}],
    [{"type": "search_result", "source": "4111 1111 ", "title": "1111 1111", "content": []}],
]


@pytest.mark.parametrize("blocks", SPLIT)
def test_no_word_of_the_shapes_own_stands_between_the_halves_of_a_value(blocks: list[Json]) -> None:
    _, group = collect(parsed(messages=[said(*blocks)]).document).groups
    assert "4111 1111 1111 1111" in "".join(group)


@pytest.mark.parametrize("block", [{"type": "image", "source": IMAGE}, {"type": "document", "source": PDF}])
def test_what_cannot_be_read_counts_as_an_attachment(block: Json) -> None:
    assert collect(parsed(messages=[said(block)]).document).attachments
    result = {"type": "tool_result", "tool_use_id": "x", "content": [block]}
    assert collect(parsed(messages=[said(result)]).document).attachments


def test_tokens_are_estimated_without_what_bounds_an_answer() -> None:
    body = {"messages": HELLO, "system": "be brief"}
    raw = json.dumps(body).encode()
    assert counted(raw) == b'{"input_tokens":%d}' % -(-len(raw) // 4)
    image = json.dumps({"messages": [said({"type": "image", "source": IMAGE})]}).encode()
    assert counted(image) == b'{"input_tokens":%d}' % (-(-(len(image) - len(IMAGE["data"])) // 4) + IMAGE_TOKENS_MAX)
    assert isinstance(counted(json.dumps(body | {"max_tokens": 5}).encode()), Refuse)


def test_the_name_in_the_record_never_changes() -> None:
    assert MESSAGES.name == "messages"
