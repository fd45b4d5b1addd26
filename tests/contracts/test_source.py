"""YAML sources: what is read, and what is refused before anything is built."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ruamel.yaml import YAML

from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.source import DEPTH_MAX, SOURCE_BYTES_MAX, parse_source
from terraflow.contracts.verify import payload_of, sign_bundle, verify_bundle
from tests.contracts.samples import KEY, KEYS, NOW, contract, document


def yaml(value: dict[str, Any]) -> bytes:
    from io import BytesIO

    out = BytesIO()
    YAML(typ="safe", pure=True).dump(value, out)
    return out.getvalue()


def refused(raw: bytes) -> tuple[str, str]:
    with pytest.raises(BundleRejected) as found:
        parse_source(raw)
    (problem,) = found.value.problems
    return problem.field, problem.rule


def test_a_source_is_signed_and_comes_back_as_the_same_bundle() -> None:
    read = parse_source(yaml(document()))
    made = verify_bundle(sign_bundle(read, KEY), KEYS, NOW)
    assert made.document == read
    assert parse_source(payload_of(read)) == read


def test_dates_without_quotes_are_rfc_3339_and_keep_their_zone() -> None:
    raw = yaml(document()).replace(b"'2026-05-01T00:00:00Z'", b"2026-05-01T05:30:00+05:30")
    assert b"issued: 2026-05-01T05:30:00+05:30" in raw
    assert parse_source(raw).issued == parse_source(yaml(document())).issued
    with pytest.raises(BundleRejected, match="issued"):
        parse_source(raw.replace(b"2026-05-01T05:30:00+05:30", b"2026-05-01"))
    with pytest.raises(BundleRejected, match="timezone"):
        parse_source(raw.replace(b"2026-05-01T05:30:00+05:30", b"2026-05-01T05:30:00"))


@pytest.mark.parametrize(
    ("raw", "where", "rule"),
    [
        (b"schema: 1\nschema: 1\n", "line 2", "twice"),
        (b"schema: 1\nmore: {a: 1, a: 2}\n", "line 2", "twice"),
        (b"schema: &one 1\n", "line 1", "anchors"),
        (b"a: 1\nb: *one\n", "line 2", "anchors"),
        (b"a: !!python/object:os.system x\n", "line 1", "tags"),
        (b"a: !mine {}\n", "line 1", "tags"),
        (b"a: !!binary aGk=\n", "line 1", "tags"),
        (b"a: 1\n---\nb: 2\n", "line 2", "another document"),
        (b"a: [1, 2\n", "line 2", "not YAML"),
        (b"a: \xff\n", "$", "UTF-8"),
        (b"- 1\n", "$", "object"),
        (b"", "$", "object"),
        (b"a: \x00\n", "$", "not YAML"),
        (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), "line 1", "deep"),
        (b"#" * (SOURCE_BYTES_MAX + 1), "$", "larger"),
    ],
)
def test_what_is_not_read(raw: bytes, where: str, rule: str) -> None:
    found = refused(raw)
    assert (found[0], rule in found[1]) == (where, True), found


def test_a_source_that_would_unfold_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    started = time.monotonic()
    assert "anchors" in refused("\n".join(lines).encode())[1]
    assert time.monotonic() - started < 10


def test_a_float_has_no_place_in_what_is_signed() -> None:
    schema = {"json_schema": {"type": "number", "multipleOf": 0.01}}
    read = parse_source(yaml(document(contracts=[contract(output=schema)])))
    with pytest.raises(BundleRejected, match="integers"):
        sign_bundle(read, KEY)


def test_a_parsers_words_repeat_nothing_of_the_source() -> None:
    secret = "sk-live-abcdef"
    for raw in (f'a: "{secret}\n', f"{secret}: 1\n{secret}: 2\n", f"a: @{secret}\n", f"a: {secret}: x: y\n"):
        with pytest.raises(BundleRejected) as found:
            parse_source(raw.encode())
        assert secret not in str(found.value)


def test_an_unsound_document_is_not_signed() -> None:
    with pytest.raises(BundleRejected, match="ghost"):
        sign_bundle(parse_source(yaml(document(contracts=[contract(safe_path="ghost")]))), KEY)
