"""The lines of batches, and the form that brings them."""

from __future__ import annotations

import json

import msgspec
import pytest

from terraflow.core.outcome import Refuse
from terraflow.gateway.batches import lines
from terraflow.gateway.batches.lines import Reading
from terraflow.gateway.http.multipart import PARTS_MAX, Part, boundary_of, parse_form

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def reading(endpoint: str | None = None) -> Reading:
    return Reading(endpoint, frozenset((CHAT, MESSAGES)), 1_000, 100)


def raw(custom_id: str = "a", url: str = CHAT, body: bytes = b'{ "model" : "m" }') -> bytes:
    return b'{"url":"%s","body":%s,"method":"POST","custom_id":"%s"}' % (url.encode(), body, custom_id.encode())


def test_a_body_is_kept_byte_for_byte() -> None:
    read = reading()
    assert read.take([raw(), b" ", raw("b", body=b'{"x":1.0}')], 1) is None
    first, second = (lines.given(item) for item in read.items)
    assert (first.custom_id, bytes(first.body)) == ("a", b'{ "model" : "m" }')
    assert (second.custom_id, bytes(second.body)) == ("b", b'{"x":1.0}')
    assert (read.named, read.endpoint) == ({(None, "m"): 1, (None, None): 3}, CHAT)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (raw(body=b'{"a":1,"a":2}'), "must not"),
        (raw(body=b'{"a":NaN}'), "must"),
        (raw(body=b"[" + b"1," * 200 + b"1]"), "must not hold more than 100"),
        (b'"' + b"x" * 1_000 + b'"', "must be at most 1000 bytes"),
        (b"\xff", "must be UTF-8"),
        (b"\xef\xbb\xbf" + raw("b"), "must not begin with a byte order mark"),
    ],
)
def test_a_line_is_strict_json_within_its_bounds(line: bytes, rule: str) -> None:
    refuse = reading().take([raw(), line], 7)
    assert refuse is not None
    assert refuse.problems[0].field == "lines[8]" and refuse.problems[0].rule.startswith(rule)


def test_lines_are_for_one_endpoint() -> None:
    refuse = reading(MESSAGES).take([raw()], 1)
    assert refuse is not None and refuse.problems[0].field == "lines[1].url"
    assert reading(MESSAGES).take([raw(url=MESSAGES)], 1) is None


def test_a_stream_is_not_for_batches() -> None:
    refuse = reading().take([raw("a"), raw("b", body=b'{"stream":true}')], 1)
    assert refuse is not None
    assert refuse.problems[0] == lines.problem(2, "body.stream", "is not for batches")
    assert reading().take([raw("a", body=b'{"stream":false}'), raw("b", body=b'{"stream":null}')], 1) is None


def test_names_are_compared_as_texts_over_all_that_was_read() -> None:
    read = reading()
    assert read.take([raw("a")], 1) is None
    assert read.take([raw("A")], 2) is None
    assert read.take([raw("\\u0061")], 3) is not None


def test_a_result_is_one_line_of_json() -> None:
    made = lines.answered("req_1", "na\nme", 200, b'{"a":1}')
    assert made.count(b"\n") == 1 and made.endswith(b"\n")
    assert json.loads(made) == {
        "id": "batch_req_1",
        "custom_id": "na\nme",
        "response": {"status_code": 200, "request_id": "req_1", "body": {"a": 1}},
        "error": None,
    }
    assert json.loads(lines.never_ran("batch_2", 3, "n", "batch_expired", "late")) == {
        "id": "batch_req_2_3",
        "custom_id": "n",
        "response": None,
        "error": {"code": "batch_expired", "message": "late"},
    }


def part(name: str = "file", data: bytes = b"data", more: str = "") -> bytes:
    return b'\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name.encode(), more.encode(), data)


def form(*parts: bytes) -> bytes:
    return b"--x" + b"--x".join(parts) + b"--x--\r\n"


def test_the_fields_of_a_form() -> None:
    data = b"binary \x00\r\n--y\r\n\r\n"
    made = parse_form(form(part("purpose", b"batch"), part(data=data, more='; filename="a \\"b\\".jsonl"')), b"x")
    assert made == {"purpose": Part(None, b"batch"), "file": Part('a "b".jsonl', data)}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text before" + form(part()),
        form(part(), part()),
        form(*[part(str(no)) for no in range(PARTS_MAX + 1)]),
        form(part())[:-4],
        form(part()) + b"more",
        form(b"\r\n\r\ndata\r\n"),
        form(b'\r\nContent-Disposition: attachment; name="a"\r\n\r\ndata\r\n'),
        form(b'\r\nContent-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n'),
        form(b'\r\nContent-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="b"\r\n\r\na\r\n'),
        form(b'\r\nContent-Disposition: form-data; name="\xff"\r\n\r\na\r\n'),
        form(b"\r\nX: " + b"y" * 3_000 + part()),
    ],
)
def test_what_two_readers_could_take_differently_is_no_form(body: bytes) -> None:
    assert isinstance(parse_form(body, b"x"), Refuse)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (None, None),
        (b"application/json", None),
        (b"multipart/form-data", None),
        (b"multipart/mixed; boundary=a", None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b"multipart/form-data; boundary=" + b"a" * 71, None),
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'Multipart/Form-Data; boundary="a b"', b"a b"),
    ],
)
def test_the_boundary_of_a_content_type(content_type: bytes | None, boundary: bytes | None) -> None:
    assert boundary_of(content_type) == boundary


def test_what_is_stored_of_an_item_is_its_name_and_its_body() -> None:
    assert msgspec.json.encode(lines.Given("a", msgspec.Raw(b"{}"))) == b'{"custom_id":"a","body":{}}'
