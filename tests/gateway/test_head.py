"""A head is understood in one way or refused."""

import pytest

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import ModelApi
from terraflow.core.types import DataClass, SensitiveType
from terraflow.gateway.http.head import Head, parse_declared, parse_head, unknown_name

PATH = b"/v1/chat/completions"
Pairs = list[tuple[bytes, bytes]]


def refused(headers: Pairs, path: bytes = PATH) -> Refuse:
    found = parse_head(headers, path)
    assert isinstance(found, Refuse), found
    assert found.reason is ModelApi.INVALID_REQUEST
    return found


@pytest.mark.parametrize(
    "name",
    [
        b"host",
        b"authorization",
        b"x-api-key",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"x-terraflow-data-class",
        b"x-terraflow-anything",
    ],
)
@pytest.mark.parametrize("second", [b"same", b"other"])
def test_a_second_one_is_refused_even_when_equal(name: bytes, second: bytes) -> None:
    assert refused([(name, b"same"), (name, second)]).problems[0].rule == "must be given once"


def test_other_headers_may_repeat() -> None:
    assert isinstance(parse_head([(b"accept", b"a"), (b"accept", b"b")], PATH), Head)


@pytest.mark.parametrize("path", [b"/v1/%2e%2e/x", b"/v1/a%2Fb", b"/v1/../x", b"/v1/./x", b"//v1/models", b"/v1\\x"])
def test_a_path_that_could_be_read_in_two_ways_is_refused(path: bytes) -> None:
    assert refused([], path).problems[0].field == "path"


def test_a_head_is_bounded_in_number_and_size() -> None:
    refused([(b"x-%d" % number, b"") for number in range(101)])
    refused([(b"x-long", b"v" * 16_400)])


def test_two_credentials_may_agree_and_may_not_differ() -> None:
    agreeing = parse_head([(b"authorization", b"Bearer tf_a"), (b"x-api-key", b"tf_a")], PATH)
    assert isinstance(agreeing, Head)
    assert agreeing.api_key == b"tf_a"
    refused([(b"authorization", b"Bearer tf_a"), (b"x-api-key", b"tf_b")])
    refused([(b"authorization", b"Basic tf_a"), (b"x-api-key", b"tf_a")])


@pytest.mark.parametrize(
    ("value", "key"),
    [(b"Bearer tf_a", b"tf_a"), (b"bearer  tf_a", b"tf_a"), (b"Basic tf_a", None), (b"tf_a", None), (b"Bearer ", None)],
)
def test_the_key_of_an_authorization(value: bytes, key: bytes | None) -> None:
    found = parse_head([(b"authorization", value)], PATH)
    assert isinstance(found, Head)
    assert found.api_key == key


def declared(**headers: bytes) -> object:
    head = Head({name.replace("_", "-").encode(): value for name, value in headers.items()})
    return unknown_name(head) or parse_declared(head)


def test_what_is_declared_is_parsed_once() -> None:
    found = declared(
        x_terraflow_workload=b"starter-assistant",
        x_terraflow_data_class=b"confidential",
        x_terraflow_sensitive_types=b"pii, phi",
        x_terraflow_deadline_ms=b"1500",
        idempotency_key=b"k 1",
        content_type=b'application/json; charset="UTF-8"',
    )
    assert not isinstance(found, Refuse)
    assert found.data_class is DataClass.CONFIDENTIAL  # type: ignore[attr-defined]
    assert found.sensitive_types == {SensitiveType.PII, SensitiveType.PHI}  # type: ignore[attr-defined]
    assert (found.workload, found.deadline_ms) == ("starter-assistant", 1500)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"x_terraflow_data_class": b"secret"}, ModelApi.INVALID_DATA_CLASS),
        ({"x_terraflow_data_class": b"Public"}, ModelApi.INVALID_DATA_CLASS),
        ({"x_terraflow_data_class": b""}, ModelApi.INVALID_DATA_CLASS),
        ({"x_terraflow_deadline_ms": b"0"}, ModelApi.INVALID_DEADLINE),
        ({"x_terraflow_deadline_ms": b"1.5"}, ModelApi.INVALID_DEADLINE),
        ({"x_terraflow_deadline_ms": b"-1"}, ModelApi.INVALID_DEADLINE),
        ({"x_terraflow_sensitive_types": b"pii,dna"}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"x_terraflow_sensitive_types": b""}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"x_terraflow_workload": b"no spaces"}, ModelApi.INVALID_REQUEST),
        ({"x_terraflow_run_id": b"a run"}, ModelApi.INVALID_REQUEST),
        ({"x_terraflow_run_budget_usd": b"1"}, ModelApi.INVALID_REQUEST),
        ({"x_terraflow_nonsense": b"r"}, ModelApi.INVALID_REQUEST),
        ({"idempotency_key": b""}, ModelApi.INVALID_REQUEST),
        ({"idempotency_key": b"k" * 256}, ModelApi.INVALID_REQUEST),
        ({"idempotency_key": "ü".encode()}, ModelApi.INVALID_REQUEST),
        ({"content_type": b"text/plain"}, ModelApi.INVALID_REQUEST),
        ({"content_type": b"application/json; charset=latin-1"}, ModelApi.INVALID_REQUEST),
        ({"content_encoding": b"gzip"}, ModelApi.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_parsed_has_its_code_and_no_echo(headers: dict[str, bytes], code: ModelApi) -> None:
    found = declared(**headers)
    assert isinstance(found, Refuse)
    assert found.reason is code
    said = repr(found.problems)
    assert all(value.decode("latin-1") not in said for value in headers.values() if len(value) > 3)
