"""What is collected of a request: everything that would be sent on, nothing that would hide a split value."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.classify.findings import TooDeep
from terraflow.classify.scan import Scanner
from terraflow.classify.surface import DEPTH_MAX, VOCABULARY, collect
from terraflow.core.strict_json import BadJson, parse_json
from terraflow.core.types import SensitiveType

CARD = "4111111111111111"
SCANNER = Scanner()


def types_of(document: dict[str, Any]) -> frozenset[SensitiveType]:
    return SCANNER.scan(collect(document).groups, bytes_max=100_000).types


def user(content: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


PLACES = {
    "content": user(CARD),
    "text part": user([{"type": "text", "text": CARD}]),
    "system": {"messages": [{"role": "system", "content": CARD}]},
    "top-level system": {"system": [{"type": "text", "text": CARD}], "messages": []},
    "name": {"messages": [{"role": "user", "name": CARD, "content": "x"}]},
    "role": {"messages": [{"role": CARD, "content": "x"}]},
    "part type": user([{"type": CARD, "text": "x"}]),
    "unknown key": {"messages": [{"role": "user", CARD: "x"}]},
    "user": user("x") | {"user": CARD},
    "stop": user("x") | {"stop": ["a", CARD]},
    "cache key": user("x") | {"prompt_cache_key": CARD},
    "metadata": user("x") | {"metadata": {"a": CARD}},
    "metadata key": user("x") | {"metadata": {CARD: "a"}},
    "number": user("x") | {"metadata": {"a": int(CARD)}},
    "float": user("x") | {"metadata": {"a": float(CARD)}},
    "tool description": user("x") | {"tools": [{"type": "function", "function": {"name": "f", "description": CARD}}]},
    "tool enum": user("x") | {"tools": [{"function": {"parameters": {"properties": {"a": {"enum": [CARD]}}}}}]},
    "arguments": {
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "pay", "arguments": f'{{"n":"{CARD}"}}'}}
                ],
            }
        ]
    },
    "escaped arguments": user('{"n":"\\u0034111111111111111"}'),
    "tool result": {"messages": [{"role": "tool", "tool_call_id": "1", "content": CARD}]},
    "tool call id": {"messages": [{"role": "tool", "tool_call_id": CARD, "content": "x"}]},
    "anthropic tool input": user([{"type": "tool_use", "id": "1", "name": "pay", "input": {"card": CARD}}]),
    "anthropic tool result": user([{"type": "tool_result", "content": [{"type": "text", "text": CARD}]}]),
    "image's address": user([{"type": "image_url", "image_url": {"url": f"https://a.example/{CARD}.png"}}]),
    "file's name": user([{"type": "file", "file": {"filename": f"{CARD}.pdf", "file_id": "f"}}]),
    "prediction": user("x") | {"prediction": {"type": "content", "content": [{"type": "text", "text": CARD}]}},
    "response schema": user("x") | {"response_format": {"json_schema": {"schema": {"title": CARD}}}},
    "message that is a string": {"messages": [CARD]},
    "unknown field": user("x") | {"field_of_tomorrow": [[{"a": [CARD]}]]},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_card_is_found_wherever_it_would_be_sent_on(place: str) -> None:
    assert types_of(PLACES[place]) == {SensitiveType.PCI}


def test_a_value_split_over_parts_and_messages_is_found() -> None:
    halves = [{"type": "text", "text": "It is 4111 1111"}, {"type": "text", "text": " 1111 1111, thanks"}]
    assert types_of(user(halves)) == {SensitiveType.PCI}
    turns = [{"role": "user", "name": "bob", "content": "4111 1111"}, {"role": "user", "content": "1111 1111"}]
    assert types_of({"messages": turns}) == {SensitiveType.PCI}


def test_a_key_gives_context_to_its_value() -> None:
    assert types_of(user("x") | {"metadata": {"ssn": "123456789"}}) == {SensitiveType.PII}
    assert types_of(user("x") | {"metadata": {"sum": "123456789"}}) == frozenset()
    secret = {"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
    assert types_of(user("x") | {"metadata": secret}) == {SensitiveType.CREDENTIALS}


def test_the_vocabulary_itself_holds_nothing() -> None:
    assert SCANNER.scan([sorted(VOCABULARY)], bytes_max=100_000).types == frozenset()


PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256))).decode()
PDF = base64.b64encode(b"%PDF-1.7 4111111111111111").decode()
TEXT = base64.b64encode(f"my card {CARD}".encode()).decode()
ATTACHED = {
    "image": [{"type": "image_url", "image_url": {"url": PNG}}],
    "remote image": [{"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}],
    "image as a string": [{"type": "image_url", "image_url": PNG}],
    "input image": [{"type": "input_image", "image_url": PNG}],
    "audio": [{"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}}],
    "file": [{"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}],
    "bare file": [{"type": "file", "file": {"file_data": PDF}}],
    "file by id": [{"type": "file", "file": {"file_id": "file-1"}}],
    "anthropic image": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PDF}}],
    "anthropic document": [{"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}}],
    "unknown part": [{"type": "hologram", "hologram": "x"}],
    "part without a type": [{"text": "x"}],
    "broken text": [{"type": "file", "file": {"file_data": "data:text/plain;base64,*"}}],
    "text that is not UTF-8": [{"type": "file", "file": {"file_data": "data:text/plain;base64,//4="}}],
    "image in a tool result": [{"type": "tool_result", "content": [{"type": "image", "source": {"data": PDF}}]}],
}
NOT_ATTACHED = {
    "text": "plain",
    "text part": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "strings": ["a", "b"],
    "text file": [{"type": "file", "file": {"file_data": f"data:text/plain;base64,{TEXT}"}}],
    "text file in percent": [{"type": "file", "file": {"file_data": f"data:text/plain;charset=utf-8,card%20{CARD}"}}],
    "anthropic text": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": CARD}}],
    "anthropic base64": [{"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": TEXT}}],
}


@pytest.mark.parametrize("case", ATTACHED)
def test_what_is_not_text_is_an_attachment_and_its_payload_is_not_read(case: str) -> None:
    surface = collect(user(ATTACHED[case]))
    assert surface.attachments
    collected = "".join(s for group in surface.groups for s in group)
    assert PDF not in collected and PNG not in collected
    assert types_of(user(ATTACHED[case])) == frozenset()


@pytest.mark.parametrize("case", NOT_ATTACHED)
def test_text_is_no_attachment(case: str) -> None:
    assert not collect(user(NOT_ATTACHED[case])).attachments
    if CARD in str(NOT_ATTACHED[case]) or TEXT in str(NOT_ATTACHED[case]):
        assert types_of(user(NOT_ATTACHED[case])) == {SensitiveType.PCI}


def test_an_audio_answer_in_the_history_is_an_attachment() -> None:
    assert collect({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}).attachments
    assert not collect({"messages": [{"role": "assistant", "audio": None, "content": "x"}]}).attachments


def test_small_numbers_and_booleans_are_not_collected() -> None:
    surface = collect(user("x") | {"temperature": 0.7, "seed": 99_999_999, "stream": True, "n": -1})
    assert surface.groups == [["m"], ["x"]]
    assert collect({"seed": 123456789}).groups == [["123456789"]]
    assert collect({"seed": -123456789}).groups == [["-123456789"]]


def nested(depth: int) -> Any:
    value: Any = "x"
    for at in range(depth):
        value = [value] if at % 2 else {"a": value}
    return value


def test_a_document_nested_too_deep_is_refused() -> None:
    """At the very depth at which the parser refuses too, so that no parsed body is refused here."""
    for deepest, deeper in (
        ({"metadata": nested(DEPTH_MAX - 1)}, {"metadata": nested(DEPTH_MAX)}),
        (user(nested(DEPTH_MAX - 3)), user(nested(DEPTH_MAX - 2))),
    ):
        assert parse_json(json.dumps(deepest).encode()) == deepest
        assert any(collect(deepest).groups)
        with pytest.raises(BadJson):
            parse_json(json.dumps(deeper).encode())
        with pytest.raises(TooDeep):
            collect(deeper)
    deep: Any = {"data": "x"}
    for _ in range(DEPTH_MAX):
        deep = {"source": deep}
    with pytest.raises(TooDeep):
        collect(user([{"type": "document", "source": deep}]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [s for k, v in value.items() for s in (k, *strings_in(v))]
    if isinstance(value, list):
        return [s for v in value for s in strings_in(v)]
    return [value] if isinstance(value, str) else []


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.lists(JSON, max_size=3))
def test_no_string_of_any_document_is_lost(outside: dict[str, Any], messages: list[Any]) -> None:
    """Apart from the vocabulary, which holds nothing (above)."""
    document = outside | {"messages": messages}
    surface = collect(document)
    collected = [s for group in surface.groups for s in group]
    lost = [s for s in strings_in(document) if s not in collected and s not in VOCABULARY]
    assert lost == []
    assert len(surface.groups) == 1 + len(messages)
