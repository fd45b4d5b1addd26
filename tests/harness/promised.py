"""What every response that carries a code must look like, whichever test met it: the headers and the body's shape.

1. `tests.raised` asks this of each response that it records, so no place of a code is seen half.
2. What depends on a case (the cost, the capability, a detail, whether waiting helps) is the test's own to compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from terraflow.core.reasons import Code, Governed, reason
from tests.harness.mouths import CHAT, MESSAGES, Mouth, mouth_of
from tools.occurrences import place_of

Json = dict[str, Any]

REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")
DOLLARS = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]{1,6})?")
FACTS = frozenset(("request_id", "reason_code", "reasons", "detail", "details", "capability", "cost_usd"))
FACTS_OF_A_REPLAY = FACTS | {"original_request_id", "original_reason_code"}
UNGOVERNED_FACTS = frozenset(("request_id", "detail", "details"))
GOVERNED_HEADERS = frozenset(
    (
        "x-terraflow-reason",
        "x-terraflow-cost-usd",
        "x-terraflow-capability",
        "x-terraflow-savings-usd",
        "x-terraflow-idempotent-replay",
    )
)
_EVENTS = "text/event-stream"
_ID_HEADERS = {CHAT.id_header, MESSAGES.id_header}


def check_response(status: int, headers: Mapping[str, str], body: bytes, path: str, code: Code) -> None:
    """Fails unless the response has all parts of its kind; `headers` has lower-case names or ignores case."""
    governed = "x-terraflow-reason" in headers
    mouth = _mouth_of(path, body)
    _check_ids(headers, mouth, governed)
    _check_retry(status, headers, reason(code).retry and code is not Governed.IDEMPOTENCY_REPLAY)
    if governed:
        _check_governed_headers(headers, code)
    else:
        assert not [name for name in GOVERNED_HEADERS if name in headers]
    kind = headers["content-type"]
    if kind.startswith(_EVENTS):
        assert governed and status < 400, "a refusal is no stream"
        assert "x-terraflow-capability" in headers
        return
    assert kind == "application/json"
    parsed: Json = json.loads(body)
    (_check_governed_body if governed else _check_ungoverned_body)(status, headers, parsed, mouth, code)


def _mouth_of(path: str, body: bytes) -> Mouth:
    """The shape of the path; of one that both vendors' clients ask, the one that they are answered in."""
    place = place_of(path)
    either = place is None or place == "models"
    return MESSAGES if either and body.startswith(b'{"type":"error"') else mouth_of(path)


def _check_ids(headers: Mapping[str, str], mouth: Mouth, governed: bool) -> None:
    ours = headers.get("x-terraflow-request-id")
    assert headers.get(mouth.id_header) == ours
    assert not [name for name in _ID_HEADERS - {mouth.id_header} if name in headers]
    assert ours is not None or not governed
    assert ours is None or REQUEST_ID.fullmatch(ours)


def _check_retry(status: int, headers: Mapping[str, str], retry: bool) -> None:
    after = headers.get("retry-after")
    assert after is None or (status >= 400 and int(after) >= 1)
    in_vain = status >= 400 and not retry and after is None
    assert headers.get("x-should-retry") == ("false" if in_vain else None)


def _check_governed_headers(headers: Mapping[str, str], code: Code) -> None:
    assert headers["x-terraflow-reason"] == code
    assert DOLLARS.fullmatch(headers["x-terraflow-cost-usd"])
    replayed = code is Governed.IDEMPOTENCY_REPLAY
    assert headers.get("x-terraflow-idempotent-replay") == ("true" if replayed else None)
    assert "x-terraflow-savings-usd" not in headers or code is Governed.CACHE_HIT
    if replayed or code is Governed.CACHE_HIT:
        assert headers["x-terraflow-cost-usd"] == "0"


def _check_governed_body(status: int, headers: Mapping[str, str], body: Json, mouth: Mouth, code: Code) -> None:
    facts = body["terraflow"]
    assert set(facts) == (FACTS_OF_A_REPLAY if code is Governed.IDEMPOTENCY_REPLAY else FACTS)
    named = {
        "request_id": "x-terraflow-request-id",
        "reason_code": "x-terraflow-reason",
        "cost_usd": "x-terraflow-cost-usd",
        "capability": "x-terraflow-capability",
    }
    for field, header in named.items():
        assert facts[field] == headers.get(header), f"{field} is {facts[field]}, {header} is {headers.get(header)}"
    assert code in facts["reasons"]
    assert isinstance(facts["detail"], str) and isinstance(facts["details"], dict)
    if status < 400:
        mouth.answer(body, facts["request_id"], facts["capability"])
        return
    assert facts["reasons"] == [code], "a refusal has one code"
    mouth.error(body, status, reason(code).meaning, None)
    assert body["error"]["code"] == code


def _check_ungoverned_body(status: int, headers: Mapping[str, str], body: Json, mouth: Mouth, code: Code) -> None:
    facts = body["terraflow"]
    assert set(facts) == UNGOVERNED_FACTS
    assert facts["request_id"] == headers.get("x-terraflow-request-id")
    assert set(facts["details"]) == {"problems"}
    problems = facts["details"]["problems"]
    assert len(problems) <= 3
    assert all(set(problem) == {"field", "rule"} for problem in problems)
    mouth.error(body, status, reason(code).meaning, problems[0]["field"] if problems else None)
    assert body["error"]["code"] == code
