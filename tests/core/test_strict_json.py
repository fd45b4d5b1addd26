"""JSON that two readers could understand differently is no JSON here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.core.strict_json import DEPTH_MAX, NODES_MAX, BadJson, depth_of, nodes_at_most, parse_json


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b'{"a":1,"a":2}', "must not repeat a key"),
        (b'{"a":{"b":1,"\\u0062":2}}', "must not repeat a key"),
        (b"[NaN]", "must not hold NaN or an infinity"),
        (b"[Infinity]", "must not hold NaN or an infinity"),
        (b"[-Infinity]", "must not hold NaN or an infinity"),
        (b"[1e400]", "must not hold a number beyond the range of a double"),
        (b"[-1e400]", "must not hold a number beyond the range of a double"),
        (b"[9223372036854775808]", "must not hold an integer beyond 64 bits"),
        (b'["\\ud800"]', "must not hold a lone surrogate"),
        (b'{"\\udc00":1}', "must not hold a lone surrogate"),
        (b"\xff\xfe", "must be UTF-8"),
        (b'["\xed\xa0\x80"]', "must be UTF-8"),
        (b"\xef\xbb\xbf{}", "must not begin with a byte order mark"),
        (b"", "must be valid JSON"),
        (b"{}x", "must be valid JSON"),
        (b"{'a':1}", "must be valid JSON"),
        (b"[1,]", "must be valid JSON"),
        (b'["\n"]', "must be valid JSON"),
        (b"9" * 5000, "must be valid JSON"),
        (b"[" * 100_000, f"must not be nested deeper than {DEPTH_MAX}"),
        (b"[" * 65 + b"]" * 65, f"must not be nested deeper than {DEPTH_MAX}"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, f"must not be nested deeper than {DEPTH_MAX}"),
    ],
)
def test_refused_with_its_rule(raw: bytes, rule: str) -> None:
    with pytest.raises(BadJson) as caught:
        parse_json(raw)
    assert caught.value.rule == rule


MANY = NODES_MAX // 2


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"1," * NODES_MAX + b"1]",
        b"[" + b"{}," * NODES_MAX + b"1]",
        b"[" + b'"",' * NODES_MAX + b"1]",
        b"{" + b",".join(b'"%d":0' % name for name in range(MANY)) + b',"a":0}',
    ],
    ids=["numbers", "objects", "texts", "names"],
)
def test_too_many_values_and_names_are_refused_before_any_is_made(raw: bytes) -> None:
    with pytest.raises(BadJson) as caught:
        parse_json(raw)
    assert caught.value.rule == f"must not hold more than {NODES_MAX} values and names"


@pytest.mark.parametrize("text", ["1," * NODES_MAX, "\\" * 9 + '{"a":[1]},' * MANY, '\\"' * NODES_MAX])
def test_what_stands_in_a_string_is_no_node(text: str) -> None:
    assert parse_json(json.dumps([text]).encode()) == [text]


@given(st.text(alphabet='\\",:[]{}a\n', max_size=40).map(str.encode), st.integers(0, 10))
def test_few_nodes_are_never_taken_for_many(raw: bytes, nodes_max: int) -> None:
    try:
        parse_json(raw, nodes_max=nodes_max)
    except BadJson as bad:
        assert not bad.rule.startswith("must not hold more") or nodes_at_most(raw) > nodes_max


def test_the_bound_itself_passes() -> None:
    parse_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    assert parse_json(b"[9223372036854775807,-9223372036854775808]") == [2**63 - 1, -(2**63)]
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\U0001f600"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # text() makes no surrogates: they have no UTF-8 to arrive in.
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.booleans())
def test_what_json_means_is_kept(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse_json(raw) == value
    assert nodes_in(value) <= nodes_at_most(raw)
    assert parse_json(raw, nodes_max=2 * nodes_in(value) + raw.count(b'"')) == value
    if not isinstance(value, str | int | float | None) and depth_of(value) > 1:
        with pytest.raises(BadJson):
            parse_json(raw, depth_max=depth_of(value) - 1)


def nodes_in(value: object) -> int:
    """Values and names, counted one by one."""
    if isinstance(value, dict):
        return 1 + sum(1 + nodes_in(inner) for inner in value.values())
    return 1 + sum(map(nodes_in, value)) if isinstance(value, list) else 1
