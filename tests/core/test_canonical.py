"""The canonical encoding equals RFC 8785's on its domain, and nothing else is accepted as canonical."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.core.canonical import INTEGER_MAX, NotCanonical, canonical, canonical_json, parse_canonical

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_equals_the_rfc_8785_package(value: Any) -> None:
    raw = canonical_json(value)
    assert raw == rfc8785.dumps(value)
    assert canonical(value) == raw
    assert parse_canonical(raw) == value


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_other_encodings_of_a_value_are_refused(value: Any) -> None:
    raw = canonical_json(value)
    others = {
        json.dumps(value).encode(),
        json.dumps(value, indent=1, ensure_ascii=False).encode(),
        raw + b"\n",
        b" " + raw,
    } - {raw}
    for other in others:
        with pytest.raises(NotCanonical):
            parse_canonical(other)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.data())
def test_a_changed_byte_is_refused_or_is_another_value(value: Any, data: st.DataObject) -> None:
    raw = bytearray(canonical_json(value))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        parsed = parse_canonical(bytes(raw))
    except NotCanonical:
        return
    assert canonical_json(parsed) == bytes(raw)
    assert json.dumps(parsed) != json.dumps(value)


def test_every_character_is_escaped_as_the_rfc_escapes_it() -> None:
    for point in [*range(0x500), 0x2028, 0x2029, 0xE000, 0xFEFF, 0xFFFF, 0x10000, 0x10FFFF]:
        assert canonical(chr(point)) == rfc8785.dumps(chr(point))


def test_keys_are_ordered_by_utf_16_code_units() -> None:
    value = {"\ue000": 1, "\U00010000": [{"\uffff": 0, "\U0010ffff": 1}], "a": 2}
    assert canonical(value) == rfc8785.dumps(value)
    assert canonical(value).index("\U00010000".encode()) < canonical(value).index("\ue000".encode())


def test_a_struct_is_written_with_sorted_fields() -> None:
    class Row(msgspec.Struct, omit_defaults=True):
        zeta: int
        alpha: str
        left_out: str | None = None

    assert canonical(Row(1, "x")) == b'{"alpha":"x","zeta":1}'


@pytest.mark.parametrize(
    "value",
    [1.5, 2.0, float("nan"), 2**53, -(2**53), [2**64], {"a": 1e400}, {1: 2}, b"x", "\ud800", {"\ud800": 1}],
)
def test_values_outside_the_domain_have_no_encoding(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical_json(value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"1.0",
        b"1.5",
        b"1e3",
        b"-0",
        b"01",
        b"9007199254740992",
        b"-9007199254740992",
        b'{"a":1,"a":1}',
        b'{"b":1,"a":1}',
        b'"\\u0041"',
        b'"\\/"',
        b'"\\u000A"',
        b'"\\u007f"',
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b"NaN",
        b"\xef\xbb\xbf1",
        b"[1,]",
        b"[" * 100_000,
        b"[" * 5_000 + b"]" * 5_000,
        '{"\ue000":1,"\U00010000":2}'.encode(),
    ],
)
def test_bytes_that_are_not_canonical_are_refused(raw: bytes) -> None:
    with pytest.raises(NotCanonical):
        parse_canonical(raw)
