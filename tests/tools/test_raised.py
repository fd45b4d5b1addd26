"""The recorder of raised codes: what it takes for a sighting, and when a session writes the list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from terraflow.core.reasons import Code, Console, Governed, ModelApi
from tests.raised import Raised, code_of
from tools.reasons_check import RAISED_AT, RAISED_BY

ROOT = Path(__file__).resolve().parents[2]
STREAMED = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-terraflow-request-id": "req_" + "0" * 32,
    "request-id": "req_" + "0" * 32,
    "x-terraflow-reason": "PERMITTED",
    "x-terraflow-cost-usd": "0.000015",
    "x-terraflow-capability": "one",
}


def response(
    status: int, body: object, reason: str | None = None, path: str = "/v1/chat/completions"
) -> httpx2.Response:
    headers = {"X-TerraFlow-Reason": reason} if reason else {}
    request = httpx2.Request("POST", f"http://plane{path}")
    return httpx2.Response(status, headers=headers, content=json.dumps(body).encode(), request=request)


def unchecked(*_: object) -> None:
    """Of these responses only the code and the status are there."""


def recorder(test: str, seen: dict[str, str], at: dict[str, str] | None = None) -> Raised:
    return Raised(test, seen, {} if at is None else at, unchecked)


def error(code: str) -> dict[str, object]:
    return {"error": {"message": "…", "type": "invalid_request_error", "param": None, "code": code}}


@pytest.mark.parametrize(
    ("met", "code"),
    [
        (response(200, {"terraflow": {"reason_code": "PERMITTED"}}, "PERMITTED"), Governed.PERMITTED),
        (response(200, {"terraflow": {"reason_code": "CACHE_HIT"}}), Governed.CACHE_HIT),
        (response(403, error("UNKNOWN_WORKLOAD"), "UNKNOWN_WORKLOAD"), Governed.UNKNOWN_WORKLOAD),
        (response(404, error("UNKNOWN_WORKLOAD"), path="/v1/batches"), Governed.UNKNOWN_WORKLOAD),
        (response(401, error("APP_UNAUTHENTICATED")), Governed.APP_UNAUTHENTICATED),
        (response(429, error("QUEUE_SHED")), Governed.QUEUE_SHED),
        (response(404, error("NOT_FOUND"), path="/v1/nothing"), ModelApi.NOT_FOUND),
        (response(404, error("NOT_FOUND"), path="/api/contracts/1"), Console.NOT_FOUND),
        (response(200, {"id": "…"}, "IDEMPOTENCY_REPLAY"), Governed.IDEMPOTENCY_REPLAY),
        (response(200, {"id": "…"}, "REVIEW_PENDING"), Governed.REVIEW_PENDING),
    ],
)
def test_a_responses_code_and_surface(met: httpx2.Response, code: Code) -> None:
    seen: dict[str, str] = {}
    assert recorder("a test", seen)(met) is code
    assert list(seen.values()) == ["a test"]


@pytest.mark.parametrize(
    "met",
    [
        response(200, {"terraflow": {"reason_code": "PERMITTED"}}, "CACHE_HIT"),
        response(403, error("CACHE_HIT"), "CACHE_HIT"),
        response(500, error("QUEUE_SHED")),
        response(403, {}, "BUDGET_THROTTLED"),
        response(200, {"choices": []}),
        response(200, []),
    ],
    ids=[
        "header and body differ",
        "another status",
        "another status in the body",
        "never a response",
        "none",
        "list",
    ],
)
def test_what_the_registry_does_not_allow_fails_the_test(met: httpx2.Response) -> None:
    seen: dict[str, str] = {}
    with pytest.raises(AssertionError):
        recorder("a test", seen)(met)
    assert seen == {}


def test_a_governed_code_without_its_header_is_not_taken_for_a_model_api_error() -> None:
    with pytest.raises(ValueError, match="BUNDLE_INVALID"):
        code_of({}, json.dumps(error("BUNDLE_INVALID")).encode())


def test_a_recorded_code_must_stand_in_what_came_over_the_wire() -> None:
    seen: dict[str, str] = {}
    raised = recorder("a test", seen)
    evidence = {"decision": {"routes": [{"capability": "far", "exclusion": "JURISDICTION_NOT_ALLOWED"}]}}
    assert raised.code(Governed.JURISDICTION_NOT_ALLOWED, evidence) is Governed.JURISDICTION_NOT_ALLOWED
    with pytest.raises(AssertionError, match="TOOLS_UNSUPPORTED"):
        raised.code(Governed.TOOLS_UNSUPPORTED, evidence)
    assert list(seen) == ["governed/JURISDICTION_NOT_ALLOWED"]


def test_of_several_tests_the_first_is_named_whatever_their_order() -> None:
    seen: dict[str, str] = {}
    for test in ("b", "a", "c"):
        recorder(test, seen)(response(429, error("QUEUE_SHED")))
    assert seen == {"governed/QUEUE_SHED": "a"}


def test_a_place_is_seen_with_the_code() -> None:
    at: dict[str, str] = {}
    raised = recorder("a test", {}, at)
    for path in (
        "/v1/chat/completions",
        "/v1/batches/batch_1/cancel",
        "/v1/nothing",
        "/v1/messages/count_tokens?beta=true",
    ):
        raised.wire(429, {}, json.dumps(error("QUEUE_SHED")).encode(), path)
    raised.item({"status_code": 400, "body": error("INVALID_REQUEST")})
    assert set(at) == {"chat QUEUE_SHED", "batches QUEUE_SHED", "count_tokens QUEUE_SHED", "item INVALID_REQUEST"}


def run(project: Path, *arguments: str) -> dict[str, str]:
    """What the list holds after a session."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=60)
    assert "Error" not in ended.stderr, ended.stderr
    return json.loads((project / RAISED_BY).read_text())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two black-box tests, and an entry of a test that is gone."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["suite"]\n')
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/conftest.py").write_text('pytest_plugins = ["tests.raised"]\n')
    (tmp_path / "suite/test_it.py").write_text(
        "from terraflow.core.reasons import Governed\n"
        f"def test_b(raised): raised.wire(200, {STREAMED}, b'', '/v1/messages')\n"
        "def test_a(raised): raised.code(Governed.CACHE_HIT, ['CACHE_HIT'])\n"
    )
    for listed in (RAISED_BY, RAISED_AT):
        (tmp_path / listed).parent.mkdir(parents=True)
    (tmp_path / RAISED_BY).write_text('{"governed/QUEUE_SHED": "suite/test_gone.py::test"}')
    return tmp_path


GONE = {"governed/QUEUE_SHED": "suite/test_gone.py::test"}
WHOLE = {"governed/CACHE_HIT": "suite/test_it.py::test_a", "governed/PERMITTED": "suite/test_it.py::test_b"}


def test_a_green_session_of_the_whole_suite_writes_exactly_what_it_saw(project: Path) -> None:
    assert run(project) == WHOLE
    assert (project / RAISED_BY).read_text() == json.dumps(WHOLE, indent=2, sort_keys=True) + "\n"
    assert json.loads((project / RAISED_AT).read_text()) == {"messages PERMITTED": "suite/test_it.py::test_b"}


@pytest.mark.parametrize(
    "part",
    [("-k", "test_b"), ("suite/test_it.py::test_a",), ("suite/test_it.py",), ("--ignore", "suite/test_more.py")],
)
def test_a_part_of_the_suite_writes_nothing(part: tuple[str, ...], project: Path) -> None:
    assert run(project, *part) == GONE


def test_a_red_or_merely_collecting_session_writes_nothing(project: Path) -> None:
    assert run(project, "--collect-only") == GONE
    with (project / "suite/test_it.py").open("a") as file:
        file.write("def test_red(): assert False\n")
    assert run(project) == GONE
