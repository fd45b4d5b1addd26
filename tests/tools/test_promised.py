"""The check of a response's parts passes what is whole, and fails for each part that is missing, wrong or too much."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from terraflow.core.reasons import Code, Governed, ModelApi, reason
from tests.harness.promised import check_response

Json = dict[str, Any]
ID = "req_" + "0" * 32


class Met(NamedTuple):
    """A response in its parts, which a change may alter."""

    status: int
    headers: dict[str, str]
    body: Json
    path: str
    code: Code


def _facts(code: Governed, **more: Any) -> Json:
    said = {"request_id": ID, "reason_code": code, "reasons": [code], "detail": "", "details": {}}
    return said | {"capability": "one", "cost_usd": "0"} | more


def _governed(code: Governed, **more: str) -> dict[str, str]:
    named = {"x-terraflow-request-id": ID, "x-terraflow-reason": code, "x-terraflow-cost-usd": "0"}
    return {"content-type": "application/json", "x-terraflow-capability": "one"} | named | more


def _error(code: Code, kind: str, param: str | None = None) -> Json:
    return {"message": reason(code).meaning, "type": kind, "param": param, "code": code}


_TOLD: Json = {"request_id": ID, "detail": "", "details": {"problems": [{"field": "body", "rule": "must be JSON"}]}}
_REPLAY = _facts(Governed.IDEMPOTENCY_REPLAY, original_request_id=ID, original_reason_code="PERMITTED")

# fmt: off
MET: dict[str, Met] = {
    "answer": Met(
        200, _governed(Governed.IDEMPOTENCY_REPLAY, **{"x-request-id": ID, "x-terraflow-idempotent-replay": "true"}),
        {"output": "Hello", "finish_reason": "stop", "usage": {"input_tokens": 1, "output_tokens": 1},
         "terraflow": _REPLAY},
        "/v1/invocations", Governed.IDEMPOTENCY_REPLAY,
    ),
    "refusal": Met(
        403, _governed(Governed.TOOL_NOT_PERMITTED, **{"request-id": ID, "x-should-retry": "false"}),
        {"type": "error", "request_id": ID, "terraflow": _facts(Governed.TOOL_NOT_PERMITTED),
         "error": {k: v for k, v in _error(Governed.TOOL_NOT_PERMITTED, "permission_error").items() if k != "param"}},
        "/v1/messages", Governed.TOOL_NOT_PERMITTED,
    ),
    "ungoverned": Met(
        400, {"content-type": "application/json", "x-terraflow-request-id": ID, "x-request-id": ID,
              "x-should-retry": "false"},
        {"error": _error(ModelApi.INVALID_REQUEST, "invalid_request_error", "body"), "terraflow": _TOLD},
        "/v1/files", ModelApi.INVALID_REQUEST,
    ),
}
# fmt: on


def _check(met: Met) -> None:
    check_response(met.status, met.headers, json.dumps(met.body).encode(), met.path, met.code)


@pytest.mark.parametrize("name", MET)
def test_a_whole_response_passes(name: str) -> None:
    _check(MET[name])


@pytest.mark.parametrize("name", MET)
def test_no_part_may_be_missing(name: str) -> None:
    whole = MET[name]
    for header in set(whole.headers) - {"content-type"}:
        with pytest.raises((AssertionError, KeyError)):
            _check(whole._replace(headers={k: v for k, v in whole.headers.items() if k != header}))
    for inside in ((), ("error",), ("terraflow",), ("terraflow", "details"), ("terraflow", "details", "problems", 0)):
        for field in _at(whole.body, inside):
            body = copy.deepcopy(whole.body)
            del _at(body, inside)[field]
            with pytest.raises((AssertionError, KeyError)):
                _check(whole._replace(body=body))


def _at(body: Any, inside: tuple[str | int, ...]) -> Json:
    for name in inside:
        body = body.get(name, {}) if isinstance(body, dict) else body[name] if body else {}
    found: Json = body or {}
    return found


# fmt: off
WRONG: tuple[tuple[str, Callable[[Met], None]], ...] = (
    ("answer",     lambda met: met.headers.update({"retry-after": "1"})),
    ("answer",     lambda met: met.headers.update({"x-should-retry": "false"})),
    ("answer",     lambda met: met.headers.update({"x-terraflow-cost-usd": "0.01"})),
    ("answer",     lambda met: met.headers.update({"request-id": ID})),
    ("answer",     lambda met: met.headers.update({"x-terraflow-savings-usd": "0.01"})),
    ("answer",     lambda met: met.body["terraflow"].update(capability="two")),
    ("answer",     lambda met: met.body["terraflow"].update(reasons=[])),
    ("refusal",    lambda met: met.headers.update({"retry-after": "1"})),
    ("refusal",    lambda met: met.headers.update({"x-terraflow-idempotent-replay": "true"})),
    ("refusal",    lambda met: met.headers.update({"content-type": "text/event-stream"})),
    ("refusal",    lambda met: met.body["terraflow"].update(reasons=["TOOL_NOT_PERMITTED", "PERMITTED"])),
    ("refusal",    lambda met: met.body["terraflow"].update(request_id=ID[:-1] + "1")),
    ("refusal",    lambda met: met.body["error"].update(type="invalid_request_error")),
    ("refusal",    lambda met: met.body["error"].update(message="No.")),
    ("ungoverned", lambda met: met.headers.update({"x-terraflow-cost-usd": "0"})),
    ("ungoverned", lambda met: met.body["error"].update(param=None)),
    ("ungoverned", lambda met: met.body["terraflow"].update(reason_code="INVALID_REQUEST")),
    ("ungoverned", lambda met: met.body["terraflow"]["details"]["problems"].extend([{}] * 3)),
)
# fmt: on


@pytest.mark.parametrize(("name", "change"), WRONG)
def test_no_part_may_be_wrong(name: str, change: Callable[[Met], None]) -> None:
    met = copy.deepcopy(MET[name])
    change(met)
    with pytest.raises(AssertionError):
        _check(met)
