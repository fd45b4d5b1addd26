"""Which black-box test saw which reason code over the wire: `terraflow/core/raised_by.json`, and where in the model
API: `tests/raised_at.json`, by place and code (`tools/occurrences.py`).

1. A test takes the fixture `raised` and hands it what came over the wire. It returns the code and fails the test
   when header and body disagree, when the code is none of its surface, when the status is not the registry's, or when
   the response has not all that one of its kind carries (`tests/harness/promised.py`).
2. Only a green session of the whole suite writes, and replaces the files, so that an entry goes with its test. Any
   other cannot know what the tests that it left out would have seen.
3. Of several tests that saw a code, the file names the one whose id sorts first; it changes only with the suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from terraflow.core.reasons import Code, Console, Governed, Kind, Lookup, ModelApi, Render, reason
from tests.harness.promised import check_response
from tools.occurrences import place_of
from tools.reasons_check import RAISED_AT, RAISED_BY

BEFORE_GOVERNANCE = (
    Governed.APP_UNAUTHENTICATED,
    Governed.QUEUE_SHED,
    Governed.UNKNOWN_WORKLOAD,
    Governed.EVIDENCE_UNAVAILABLE,
    Governed.INTERNAL_ERROR,
)
"""Governed codes that may stand in an error body without a reason header; the third one on batches."""
OF_A_BUNDLE = ("models", "batches")
"""Places outside of governance that need a bundle in force."""

Sightings = dict[str, str]
Check = Callable[[int, Mapping[str, str], bytes, str, Code], None]
"""Fails for a response, in its parts, that lacks something of its kind."""
SEEN = pytest.StashKey[Sightings]()
SEEN_AT = pytest.StashKey[Sightings]()
DESELECTED = pytest.StashKey[list[pytest.Item]]()


class Raised:
    """What one test saw."""

    def __init__(self, test: str, seen: Sightings, seen_at: Sightings, check: Check = check_response) -> None:
        self._check = check
        self._test = test
        self._seen = seen
        self._seen_at = seen_at

    def __call__(self, response: Any) -> Code:
        """Records the code of an HTTP response of httpx2's shape, its body read. Returns the code."""
        path = getattr(response.url, "path", str(response.url))
        return self.wire(response.status_code, response.headers, response.content, path)

    def wire(self, status: int, headers: Mapping[str, str], body: bytes, path: str) -> Code:
        """Records the code of an HTTP response in its parts; `headers` has lower-case names or ignores case."""
        code = self._allowed(status, headers, body, path)
        if not path.startswith("/api/"):
            self._check(status, headers, body, path, code)
        return self._seen_there(code, path)

    def item(self, response: Mapping[str, Any]) -> Code:
        """Records the code of a batch's item: the `response` of its line of results."""
        body = json.dumps(response["body"]).encode()
        return self._seen_there(self._allowed(response["status_code"], {}, body, "item"), "item")

    def _allowed(self, status: int, headers: Mapping[str, str], body: bytes, path: str) -> Code:
        code = code_of(headers, body, path)
        row = reason(code)
        assert row.kind is not Kind.RECORDED_ONLY, f"{code} is never the code of a response"
        if code is not Governed.IDEMPOTENCY_REPLAY:
            allowed = {row.status, row.second.status if row.second else row.status}
            assert status in allowed, f"{code} came with {status}, the registry says {allowed}"
        return code

    def _seen_there(self, code: Code, path: str) -> Code:
        place = place_of(path)
        if place is not None:
            name = f"{place} {code}"
            self._seen_at[name] = min(self._test, self._seen_at.get(name, self._test))
        return self._record(code)

    def code(self, code: Code, seen: object) -> Code:
        """Records a code that is not a response's own: a route's exclusion, a further reason, a stream's outcome.
        `seen` is the JSON that came over the wire and must hold the code as a string of its own."""
        assert str(code) in set(_strings(seen)), f"{code} is not in what came over the wire"
        return self._record(code)

    def lookup(self, answer: Any) -> Lookup:
        """Records the code of a LookupRoute's or LookupPDRoute's answer, as a gRPC client has it."""
        code = Lookup(answer.reason_code)
        self._record(code)
        return code

    def render(self, answer: Any) -> Render:
        """Records the code of a RenderTemplate's answer, as a gRPC client has it."""
        code = Render(answer.reason_code)
        self._record(code)
        return code

    def _record(self, code: Code) -> Code:
        name = f"{reason(code).surface}/{code}"
        self._seen[name] = min(self._test, self._seen.get(name, self._test))
        return code


def code_of(headers: Mapping[str, str], body: bytes, path: str = "/v1") -> Code:
    """The code of an HTTP response. The surface of a code in an error body alone follows from the path."""
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    outer = parsed if isinstance(parsed, dict) else {}
    in_header = headers.get("x-terraflow-reason")
    in_body = (outer.get("terraflow") or {}).get("reason_code")
    if in_header and in_body:
        assert in_header == in_body, f"the header says {in_header}, the body {in_body}"
    if in_header or in_body:
        return Governed(in_header or in_body)
    error = outer.get("error")
    assert isinstance(error, dict) and error.get("code"), "the response carries no reason code"
    if path.startswith("/api/"):
        return Console(error["code"])
    bundle = (Governed.BUNDLE_INVALID, Governed.BUNDLE_EXPIRED) if place_of(path) in OF_A_BUNDLE else ()
    before = [code for code in (*BEFORE_GOVERNANCE, *bundle) if code == error["code"]]
    return before[0] if before else ModelApi(error["code"])


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _strings(part)]
    return []


def _ran_whole_suite(config: pytest.Config) -> bool:
    left_out = config.stash[DESELECTED] or config.getoption("ignore") or config.getoption("ignore_glob")
    return not left_out and list(config.args) == config.getini("testpaths")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = {}
    config.stash[SEEN_AT] = {}
    config.stash[DESELECTED] = []


@pytest.fixture
def raised(request: pytest.FixtureRequest) -> Raised:
    """Records the reason codes that this test sees over the wire."""
    stash = request.config.stash
    return Raised(request.node.nodeid, stash[SEEN], stash[SEEN_AT])


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[DESELECTED].append(item)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if exitstatus != pytest.ExitCode.OK or config.getoption("collectonly") or not _ran_whole_suite(config):
        return
    for name, key in ((RAISED_BY, SEEN), (RAISED_AT, SEEN_AT)):
        (config.rootpath / name).write_text(json.dumps(config.stash[key], indent=2, sort_keys=True) + "\n")
