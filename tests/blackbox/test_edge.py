"""Before governance: callers, heads and bodies that are refused. Nothing here is recorded or charged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY, CHAT, body_of, raw_request, request_bytes
from tests.harness.checks import Checks

BODY_BYTES_MAX = 100_000
BODY_VALUES_MAX = 55_000
BODY = json.dumps(body_of()).encode()
START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: plane\r\n"


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    document = bundle.document(purpose("plain", sim("one")), purpose("theirs", sim("two"), tenant="umbra"))
    return launch_shared(document, body_bytes_max=BODY_BYTES_MAX, body_values_max=BODY_VALUES_MAX)


@pytest.fixture(autouse=True)
def nothing_is_recorded(site: Site) -> Iterator[None]:
    """What is refused before governance leaves no record and no cost."""
    before = site.folder.rows("SELECT count(*) FROM leaf"), site.folder.money()
    yield
    assert (site.folder.rows("SELECT count(*) FROM leaf"), site.folder.money()) == before


# Who calls.


@pytest.mark.parametrize(
    "credential",
    [
        {},
        {"Authorization": f"Bearer tf_{CANARY}"},
        {"Authorization": f"Bearer sk-{CANARY}"},
        {"Authorization": f"Basic {CANARY}"},
        {"Authorization": "Bearer"},
        {"x-api-key": f"tf_{CANARY}"},
        {"x-api-key": ""},
    ],
    ids=["none", "unknown", "foreign", "basic", "empty-bearer", "unknown-x-api-key", "empty-x-api-key"],
)
@pytest.mark.parametrize("path", [CHAT, "/models", "/nothing"])
def test_no_key_that_this_plane_accepts(credential: dict[str, str], path: str, site: Site, checks: Checks) -> None:
    lines = [f"{name}: {value}" for name, value in credential.items()]
    method = "POST" if path == CHAT else "GET"
    reply = raw_request(site.plane, request_bytes(lines, BODY if path == CHAT else b"", f"/v1{path}", method=method))
    assert reply is not None
    code = checks.raised.wire(reply.status, reply.headers, reply.body, f"/v1{path}")
    assert code is Governed.APP_UNAUTHENTICATED
    checks.ungoverned_parts(reply.status, reply.headers, json.loads(reply.body), code, None, named=False)
    assert CANARY.encode() not in reply.body


# Heads.


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        (["X-TerraFlow-Data-Class: public", "X-TerraFlow-Data-Class: restricted"], "x-terraflow-data-class"),
        (["X-TerraFlow-Data-Class: public", "x-terraflow-data-class: public"], "x-terraflow-data-class"),
        (["X-TerraFlow-Workload: plain", "X-TerraFlow-Workload: plain"], "x-terraflow-workload"),
        (["X-TerraFlow-Deadline-Ms: 1000", "X-TerraFlow-Deadline-Ms: 2000"], "x-terraflow-deadline-ms"),
        (["Idempotency-Key: a", "Idempotency-Key: b"], "idempotency-key"),
        (["Content-Type: application/json"], "content-type"),
        (["Host: elsewhere"], "host"),
        (["Authorization: Bearer tf_other"], "authorization"),
        (["x-api-key: tf_other"], "x-api-key"),
        ([f"X-Filler-{n}: x" for n in range(100)], "headers"),
        ([f"X-Filler: {'x' * 17_000}"], "headers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_head_that_two_readers_could_read_differently(
    lines: list[str], field: str, site: Site, checks: Checks
) -> None:
    lines = [f"Authorization: Bearer {site.caller.api_key}", *lines]
    reply = raw_request(site.plane, request_bytes(lines, BODY))
    assert reply is not None
    code = checks.raised.wire(reply.status, reply.headers, reply.body, f"/v1{CHAT}")
    checks.ungoverned_parts(reply.status, reply.headers, json.loads(reply.body), code, field, named=False)
    assert code is ModelApi.INVALID_REQUEST


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"X-TerraFlow-Priority": CANARY}, "headers"),
        ({"X-TerraFlow-Workload": f"no workload {CANARY}"}, "x-terraflow-workload"),
        ({"Content-Type": f"text/{CANARY}"}, "content-type"),
        ({"Content-Type": "application/json; charset=utf-16"}, "content-type"),
        ({"Content-Encoding": "gzip"}, "content-encoding"),
        ({"Idempotency-Key": "x" * 256}, "idempotency-key"),
        ({"Idempotency-Key": ""}, "idempotency-key"),
    ],
    ids=["unknown", "workload", "type", "charset", "encoding", "long-key", "blank-key"],
)
def test_a_header_that_cannot_be_what_it_says(headers: dict[str, str], field: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.post(body_of(), headers), ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"X-TerraFlow-Data-Class": CANARY}, ModelApi.INVALID_DATA_CLASS),
        ({"X-TerraFlow-Data-Class": "Restricted"}, ModelApi.INVALID_DATA_CLASS),
        ({"X-TerraFlow-Data-Class": ""}, ModelApi.INVALID_DATA_CLASS),
        ({"X-TerraFlow-Sensitive-Types": f"pii,{CANARY}"}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"X-TerraFlow-Sensitive-Types": "pii,,pci"}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"X-TerraFlow-Sensitive-Types": ""}, ModelApi.INVALID_SENSITIVE_TYPE),
        ({"X-TerraFlow-Deadline-Ms": CANARY}, ModelApi.INVALID_DEADLINE),
        ({"X-TerraFlow-Deadline-Ms": "0"}, ModelApi.INVALID_DEADLINE),
        ({"X-TerraFlow-Deadline-Ms": "-1"}, ModelApi.INVALID_DEADLINE),
        ({"X-TerraFlow-Deadline-Ms": "1.5"}, ModelApi.INVALID_DEADLINE),
        ({"X-TerraFlow-Deadline-Ms": "١٠٠٠"}, ModelApi.INVALID_DEADLINE),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_a_declaration_outside_its_vocabulary(
    headers: dict[str, str], code: ModelApi, site: Site, checks: Checks
) -> None:
    encoded: Any = {name: value.encode() for name, value in headers.items()}
    checks.ungoverned(site.caller.post(body_of(), encoded), code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/chat%2fcompletions", ModelApi.INVALID_REQUEST),
        ("/v1/../v1/chat/completions", ModelApi.INVALID_REQUEST),
        ("/v1/./chat/completions", ModelApi.INVALID_REQUEST),
        ("/v1//chat/completions", ModelApi.INVALID_REQUEST),
        ("/v1/chat/completions/", ModelApi.NOT_FOUND),
        ("/v1/Chat/completions", ModelApi.NOT_FOUND),
        ("/v1/embeddings", ModelApi.NOT_FOUND),
        ("/v1/evidence", ModelApi.NOT_FOUND),
        ("/v2/chat/completions", ModelApi.NOT_FOUND),
        ("/", ModelApi.NOT_FOUND),
    ],
)
def test_a_path_that_is_none(path: str, code: ModelApi, site: Site, checks: Checks) -> None:
    lines = [f"Authorization: Bearer {site.caller.api_key}"]
    reply = raw_request(site.plane, request_bytes(lines, BODY, path))
    assert reply is not None
    assert checks.raised.wire(reply.status, reply.headers, reply.body, path) is code
    field = "path" if code is ModelApi.INVALID_REQUEST else None
    named = code is ModelApi.NOT_FOUND and path.startswith("/v1/")
    checks.ungoverned_parts(reply.status, reply.headers, json.loads(reply.body), code, field, named)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_a_method_that_the_path_does_not_have(method: str, site: Site, checks: Checks) -> None:
    lines = [f"Authorization: Bearer {site.caller.api_key}"]
    reply = raw_request(site.plane, request_bytes(lines, b"", method=method))
    assert reply is not None
    if method == "BREW":
        assert reply.status == 400
        return
    assert checks.raised.wire(reply.status, reply.headers, reply.body, f"/v1{CHAT}") is ModelApi.NOT_FOUND


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"POST /v1/chat/completions HTTP/9.9\r\nHost: plane\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost plane\r\n\r\n",
        START + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        START + b"Content-Length: -5\r\n\r\nhello",
        START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        START + b"Transfer-Encoding: chunked\r\n\r\nnothex\r\n",
    ],
    ids=["tls", "version", "no-colon", "two-lengths", "negative-length", "length-and-chunks", "bad-chunk"],
)
def test_bytes_that_are_no_request_are_refused(raw: bytes, site: Site) -> None:
    reply = raw_request(site.plane, raw, shut=True)
    assert reply is None or 400 <= reply.status < 500
    assert site.caller.get("/models").status_code == 200


# Bodies.


def _messages(content: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


def _image(url: str) -> bytes:
    return _messages([{"type": "image_url", "image_url": {"url": url}}])


# fmt: off
@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        (b"", "body", "JSON"),
        (b"{" + CANARY.encode(), "body", "JSON"),
        (b'{"messages": []} trailing', "body", "JSON"),
        (b"\xef\xbb\xbf" + BODY, "body", "byte order mark"),
        (BODY.decode().encode("utf-16"), "body", "UTF-8"),
        (BODY.replace(b"Hello", b"\xff\xfe"), "body", "UTF-8"),
        (BODY.replace(b"Hello", rb"\ud800"), "body", "surrogate"),
        (b'{"model": "a", "model": "b", "messages": []}', "body", "repeat a key"),
        (b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}', "body", "repeat a key"),
        (b'{"messages": NaN}', "body", "NaN"),
        (b'{"messages": [], "temperature": Infinity}', "body", "NaN"),
        (b'{"messages": [], "temperature": 1e400}', "body", "double"),
        (b'{"messages": [], "seed": 123456789012345678901234567890}', "body", "64 bits"),
        (b'{"messages":' + b"[" * 65 + b"]" * 65 + b"}", "body", "deeper"),
        (b"[" * 50_000, "body", "deeper"),
        (b'{"x":' * 15_000, "body", "deeper"),
        (_messages("x" * BODY_BYTES_MAX), "body", "at most"),
        (BODY[:-1] + b',"x":[' + b"[]," * 30_000 + b"1]}", "body", "values and names"),
        (b"[]", "body", "must be"),
        (b'"text"', "body", "must be"),
        (b"null", "body", "must be"),
        (b"{}", "messages", "required"),
        (b'{"messages": []}', "messages", "must be"),
        (b'{"messages": {}}', "messages", "must be"),
        (b'{"messages": [{"content": "x"}]}', "messages[0].role", "required"),
        (b'{"messages": [{"role": "oracle", "content": "x"}]}', "messages[0].role", "not allowed"),
        (_messages(5), "messages[0].content", "must be"),
        (_messages([]), "messages[0].content", "must be"),
        (_messages([{"type": "hologram"}]), "messages[0].content[0].type", "not allowed"),
        (_messages([{"type": "image_url"}]), "messages[0].content[0].image_url", "required"),
        (_image(f"file:///{CANARY}"), "messages[0].content[0].image_url.url", "https address"),
        (_image(f"http://10.0.0.1/{CANARY}"), "messages[0].content[0].image_url.url", "https address"),
        (_image("data:text/html;base64,aGk="), "messages[0].content[0].image_url.url", "https address"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_body_that_is_no_chat_request(body: bytes, field: str, rule: str, site: Site, checks: Checks) -> None:
    problem = checks.ungoverned(site.caller.post(body), ModelApi.INVALID_REQUEST, field=field)
    assert problem["field"] == field
    assert rule in problem["rule"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1_000_000}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": CANARY}, "temperature"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": "all"}, "tools"),
        ({"response_format": {"type": CANARY}}, "response_format.type"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {CANARY: True}}, "stream_options"),
        ({"metadata": {CANARY: 1}}, "metadata[...]"),
        ({"logit_bias": {CANARY: CANARY}}, "logit_bias[...]"),
        ({"model": 5}, "model"),
        ({"seed": "one"}, "seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_of_the_wrong_type(fields: dict[str, Any], field: str, site: Site, checks: Checks) -> None:
    problem = checks.ungoverned(site.caller.post(body_of(**fields)), ModelApi.INVALID_REQUEST, field=field)
    assert problem["field"] == field
# fmt: on


def test_a_body_without_a_length_is_bounded_while_it_is_read(site: Site, checks: Checks) -> None:
    def pieces() -> Any:
        for _ in range(40):
            yield b"x" * 10_000

    response = site.caller.post_pieces(pieces())
    checks.ungoverned(response, ModelApi.INVALID_REQUEST, field="body")
