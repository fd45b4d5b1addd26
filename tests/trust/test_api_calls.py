"""Generated calls of every route, and a judge that catches a fault, an echo, an unknown error, and what was left."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from terraflow.core.reasons import ModelApi
from terraflow.gateway.http.routes import ROUTES
from tests.harness.api_calls import KEY, SAMPLES, api_call
from trust.api_calls import VENDOR_SECRET, WORKLOADS, Answer, left_in, problem, prove

CALL = api_call(1, {}, WORKLOADS)


async def test_calls_of_every_route(tmp_path: Path) -> None:
    asked, problems = await prove(tmp_path / "data", 1_500, 1)
    assert problems == []
    assert asked.statuses[200] > 300 and asked.statuses[400] > 300 and asked.statuses[503] > 30


def test_a_call_is_the_same_wherever_it_is_asked_again() -> None:
    calls = [api_call(number, {"req": ["req_1"]}, WORKLOADS) for number in range(500)]
    assert calls == [api_call(number, {"req": ["req_1"]}, WORKLOADS) for number in range(500)]
    assert {call.route for call in calls} >= {route for _, route in ROUTES} | {"/metrics", "/healthz", "/readyz"}
    assert SAMPLES.keys() <= ROUTES.keys()
    assert sum(call.secret.encode() in call.raw for call in calls) > 300
    assert sum(KEY in call.raw for call in calls) > 450


def error(code: str, status: int = 400) -> Answer:
    body = json.dumps({"error": {"code": code}}).encode()
    return Answer(status, {}, body, body)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error("INTERNAL_ERROR", 500), "answered 500"),
        (error("NO_SUCH_CODE"), "without a code"),
        (error(ModelApi.NOT_FOUND), "answered 400 with NOT_FOUND"),
        (Answer(400, {}, b"no", b"no"), "without a code"),
        (Answer(200, {}, b"x-echo: " + CALL.secret.encode(), b"{}"), "with a secret"),
        (Answer(503, {}, VENDOR_SECRET.encode(), b"{}"), "with a secret"),
    ],
)
def test_a_wrong_answer_is_caught(answer: Answer, said: str) -> None:
    found = problem(CALL, answer)
    assert found is not None and said in found


def test_a_right_answer_is_none() -> None:
    assert problem(CALL, error(ModelApi.INVALID_REQUEST)) is None
    assert problem(CALL, Answer(200, {}, b"{}", b"{}")) is None


@pytest.mark.parametrize("before", [b"", b"a", b"ab"])
def test_what_was_left_is_caught(before: bytes, tmp_path: Path) -> None:
    secret = CALL.secret
    files = [tmp_path / name for name in ("clear", "hex", "base64", "nothing")]
    raw = before + secret.encode() + b"!"
    for file, content in zip(files, (raw, raw.hex().encode(), base64.b64encode(raw), b"nothing"), strict=True):
        file.write_bytes(content)
    assert left_in(files, {"it": secret}) == ["clear holds it", "hex holds it", "base64 holds it"]
