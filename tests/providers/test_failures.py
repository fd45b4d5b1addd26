"""What each vendor's refusal means, row by row, and what no refusal may do."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.core.chat_fields import CHAT_FIELDS, UNKNOWN_FIELD
from terraflow.ports.upstream import Failure
from terraflow.providers.failures import (
    ANTHROPIC,
    BREAKS,
    NETWORK,
    OPENAI,
    decide_failure,
    failure_of,
    failure_of_break,
    failure_of_success,
)
from terraflow.providers.refusal import RETRY_AFTER_MAX_S, Refusal, parse_refusal, parse_retry_after_s

F = Failure
NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def e(**fields: Any) -> dict[str, Any]:
    return {"error": {"message": "", "type": "invalid_request_error", "param": None, "code": None, **fields}}


def a(kind: str, message: str = "", **details: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


# status, body, failure, whether it may have to be paid
OPENAI_ROWS: list[tuple[int, Any, Failure, bool]] = [
    # OpenAI
    (400, e(), F.REJECTED_CONTENT, False),
    (400, e(param="messages"), F.REJECTED_CONTENT, False),
    (400, e(param="messages.[2].content"), F.REJECTED_CONTENT, False),
    (400, e(param="messages[2].tool_calls[0].id"), F.REJECTED_CONTENT, False),
    (400, e(param="tools[0].function.parameters", code="invalid_function_parameters"), F.REJECTED_CONTENT, False),
    (400, e(param="functions[0]"), F.REJECTED_CONTENT, False),
    (400, e(param="messages", code="context_length_exceeded"), F.REJECTED_CONTENT, False),
    (400, e(param="max_tokens", code="unsupported_parameter"), F.MISMATCH, False),
    (400, e(param="temperature", code="unsupported_value"), F.MISMATCH, False),
    (400, e(param="response_format", code="invalid_json_schema"), F.MISMATCH, False),
    (400, e(param="tool_choice"), F.MISMATCH, False),
    (400, e(param="reasoning_effort"), F.MISMATCH, False),
    (400, e(param="brand_new"), F.MISMATCH, False),
    (400, e(message="Unrecognized request argument supplied: 'top_k'"), F.MISMATCH, False),
    (400, e(param="model", code="model_not_found"), F.MODEL_NOT_FOUND, False),
    (400, e(param="model"), F.MODEL_NOT_FOUND, False),
    (400, e(code="invalid_prompt"), F.CONTENT_FILTERED, True),
    (400, e(code="content_policy_violation"), F.CONTENT_FILTERED, True),
    (401, e(code="invalid_api_key"), F.AUTHENTICATION, False),
    (402, e(), F.AUTHENTICATION, False),
    (403, e(code="unsupported_country_region_territory"), F.AUTHENTICATION, False),
    (404, e(code="model_not_found"), F.MODEL_NOT_FOUND, False),
    (404, b"<html>", F.MODEL_NOT_FOUND, False),
    (405, b"", F.MODEL_NOT_FOUND, False),
    (408, e(), F.TIMEOUT, True),
    (409, e(), F.SERVER_ERROR, True),
    (413, e(), F.REJECTED_CONTENT, False),
    (413, b"<html>413 Request Entity Too Large</html>", F.REJECTED_CONTENT, False),
    (415, e(), F.MISMATCH, False),
    (422, e(param="messages"), F.REJECTED_CONTENT, False),
    (429, e(type="requests", code="rate_limit_exceeded"), F.RATE_LIMITED, False),
    (429, e(type="tokens", code="rate_limit_exceeded"), F.RATE_LIMITED, False),
    (429, e(type="rate_limit_error", code="slow_down"), F.RATE_LIMITED, False),
    (429, e(type="insufficient_quota", code="insufficient_quota"), F.AUTHENTICATION, False),
    (429, e(type="insufficient_quota", code="credit_balance_exhausted"), F.AUTHENTICATION, False),
    (429, e(type="x", code="project_spend_limit_exceeded"), F.AUTHENTICATION, False),
    (429, e(type="x", code="billing_hard_limit_reached"), F.AUTHENTICATION, False),
    (429, b"", F.RATE_LIMITED, False),
    (500, e(type="server_error"), F.SERVER_ERROR, True),
    (502, b"<html>bad gateway</html>", F.SERVER_ERROR, True),
    (503, e(type="service_unavailable"), F.OVERLOADED, False),
    (504, b"", F.SERVER_ERROR, True),
    (529, b"", F.OVERLOADED, False),
    (599, b"", F.SERVER_ERROR, True),
    (301, b"", F.MALFORMED, False),
    (307, b"", F.MALFORMED, False),
    (204, b"", F.MALFORMED, True),
    (418, b"", F.SERVER_ERROR, True),
    # Azure
    (400, e(type=None, param="prompt", code="content_filter", status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"}), F.CONTENT_FILTERED, True),
    (404, {"error": {"code": "DeploymentNotFound", "message": "x"}}, F.MODEL_NOT_FOUND, False),
    (401, {"error": {"code": "401", "message": "Access denied"}}, F.AUTHENTICATION, False),
    # vLLM and SGLang
    (400, {"object": "error", "message": "This model's maximum context length is 8 tokens.", "type": "BadRequestError",
           "param": None, "code": 400}, F.REJECTED_CONTENT, False),
    (404, {"object": "error", "message": "x", "type": "NotFoundError", "param": None, "code": 404},
     F.MODEL_NOT_FOUND, False),
    (400, {"error": {"message": "temperature must be non-negative", "type": "BadRequestError", "param": "temperature",
                     "code": 400}}, F.MISMATCH, False),
    (400, {"detail": [{"loc": ["body", "messages", 0, "content"], "msg": "x"}]}, F.REJECTED_CONTENT, False),
    (422, {"detail": [{"loc": ["body", "top_p"], "msg": "x"}]}, F.MISMATCH, False),
    (401, {"error": "Unauthorized"}, F.AUTHENTICATION, False),
    # llama.cpp
    (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, F.OVERLOADED, False),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size",
                     "type": "exceed_context_size_error"}}, F.REJECTED_CONTENT, False),
    (501, {"error": {"code": 501, "message": "x", "type": "not_supported_error"}}, F.SERVER_ERROR, True),
]  # fmt: skip

ANTHROPIC_ROWS: list[tuple[int, Any, Failure, bool]] = [
    (400, a("invalid_request_error", "messages.0.content: field required"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "messages: roles must alternate"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "tools.0.custom.input_schema: is invalid"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "system: text content blocks must be non-empty"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "something went wrong"), F.REJECTED_CONTENT, False),
    (400, a("invalid_request_error", "max_tokens: 100000 > 64000"), F.MISMATCH, False),
    (400, a("invalid_request_error", "`temperature` may only be set to 1 when thinking is enabled"), F.MISMATCH, False),
    (400, a("invalid_request_error", "output_config.format.schema: unsupported"), F.MISMATCH, False),
    (400, a("invalid_request_error", "thinking.budget_tokens: must be less than max_tokens"), F.MISMATCH, False),
    (400, a("invalid_request_error", "thinking: Extra inputs are not permitted"), F.MISMATCH, False),
    (400, a("invalid_request_error", "Your credit balance is too low to access the API."), F.AUTHENTICATION, False),
    (400, a("invalid_request_error", "You have reached your specified API usage limits."), F.AUTHENTICATION, False),
    (401, a("authentication_error"), F.AUTHENTICATION, False),
    (402, a("billing_error"), F.AUTHENTICATION, False),
    (403, a("permission_error"), F.AUTHENTICATION, False),
    (404, a("not_found_error", "model: claude-x"), F.MODEL_NOT_FOUND, False),
    (404, b"<html>", F.MODEL_NOT_FOUND, False),
    (400, a("invalid_request_error", "model: no such model"), F.MODEL_NOT_FOUND, False),
    (401, b"", F.AUTHENTICATION, False),
    (429, b"", F.RATE_LIMITED, False),
    (408, b"", F.TIMEOUT, True),
    (415, b"", F.MISMATCH, False),
    (204, b"", F.MALFORMED, True),
    (409, a("conflict_error"), F.SERVER_ERROR, True),
    (413, a("request_too_large"), F.REJECTED_CONTENT, False),
    (429, a("rate_limit_error"), F.RATE_LIMITED, False),
    (429, a("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}), F.AUTHENTICATION, False),
    (500, a("api_error"), F.SERVER_ERROR, True),
    (503, b"", F.OVERLOADED, False),
    (504, a("timeout_error"), F.TIMEOUT, True),
    (529, a("overloaded_error"), F.OVERLOADED, False),
    (520, b"<html>", F.SERVER_ERROR, True),
    (302, b"", F.MALFORMED, False),
]

ROWS = [(OPENAI, *row) for row in OPENAI_ROWS] + [(ANTHROPIC, *row) for row in ANTHROPIC_ROWS]


@pytest.mark.parametrize(
    ("table", "status", "body", "failure", "reached"),
    ROWS,
    ids=[f"{'openai' if r[0] is OPENAI else 'anthropic'}-{r[1]}-{i}" for i, r in enumerate(ROWS)],
)
def test_what_a_refusal_means(table: Any, status: int, body: Any, failure: Failure, reached: bool):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    failed = failure_of(table, parse_refusal(status, {}, raw, NOW_S))
    assert (failed.failure, failed.reached, failed.status) == (failure, reached, status)
    assert bool(failed.fields) is (failure is F.MISMATCH and status != 415)


def test_every_row_of_every_table_is_seen():
    for table, rows in ((OPENAI, OPENAI_ROWS), (ANTHROPIC, ANTHROPIC_ROWS)):
        seen = set()
        for status, body, _, _ in rows:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            seen.add(decide_failure(table, parse_refusal(status, {}, raw, NOW_S)))
        inside_a_success = {row for row in table if row.statuses == (200,)}
        assert set(table) - seen == inside_a_success


def test_a_mismatch_names_the_field_in_words_of_ours():
    def fields(body: dict[str, Any], table: Any = OPENAI) -> tuple[str, ...]:
        return failure_of(table, parse_refusal(400, {}, json.dumps(body).encode(), NOW_S)).fields

    assert fields(e(param="top_p")) == ("top_p",)
    assert fields(e(param="4111 1111 1111 1111")) == (UNKNOWN_FIELD,)
    assert fields(a("invalid_request_error", "output_config.format: no"), ANTHROPIC) == ("response_format",)
    assert fields(a("invalid_request_error", "stop_sequences: no"), ANTHROPIC) == ("stop",)
    assert fields(a("invalid_request_error", "thinking: no"), ANTHROPIC) == (UNKNOWN_FIELD,)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "type", "code", "param", "message", "detail", "loc", "details", "innererror"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from([OPENAI, ANTHROPIC]),
    st.integers(100, 999),
    _JSON.map(lambda v: json.dumps(v).encode()) | st.binary(),
)
def test_whatever_a_vendor_says_it_is_some_failure(table: Any, status: int, raw: bytes):
    failed = failure_of(table, parse_refusal(status, {}, raw, NOW_S))
    assert set(failed.fields) <= CHAT_FIELDS | {UNKNOWN_FIELD}
    begun = failure_of_success(table, raw)
    assert begun.reached
    assert set(begun.fields) <= CHAT_FIELDS | {UNKNOWN_FIELD}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 01 Jan 2027 00:00:00 GMT"}, RETRY_AFTER_MAX_S),
        ({"retry-after": "999999999"}, RETRY_AFTER_MAX_S),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 99 Foo 2026 77:00:30 GMT"}, None),
        ({"retry-after": "1" * 5_000}, None),
        ({"retry-after": ""}, None),
    ],
    ids=str,
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None):
    assert parse_retry_after_s(headers, NOW_S) == seconds


@given(st.text(max_size=80))
def test_no_header_breaks_it(text: str):
    found = parse_retry_after_s({"retry-after": text, "retry-after-ms": text}, NOW_S)
    assert found is None or 0 <= found <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize("exception", [*NETWORK, *(row.exception for row in BREAKS)])
def test_every_exception_of_the_network_has_a_row(exception: type[BaseException]):
    assert any(issubclass(exception, row.exception) for row in BREAKS)
    assert issubclass(exception, NETWORK)


def test_the_more_special_exception_decides():
    assert failure_of_break(aiohttp.ConnectionTimeoutError()).failure is F.CONNECT
    assert failure_of_break(aiohttp.SocketTimeoutError()).failure is F.TIMEOUT
    assert failure_of_break(aiohttp.ServerDisconnectedError()).failure is F.CUT_OFF
    for place, row in enumerate(BREAKS):
        assert not any(issubclass(row.exception, earlier.exception) for earlier in BREAKS[:place])


def test_a_body_that_is_too_long_has_no_words():
    raw = b'{"error": {"code": "insufficient_quota", "message": "' + b"x" * 70_000 + b'"}}'
    assert parse_refusal(429, {}, raw, NOW_S) == Refusal(429)
