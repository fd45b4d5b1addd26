"""What every refusal, every answer and every record must look like, whatever its code.

1. Each check records the code as seen over the wire (`tests.raised`).
2. A refusal is checked in all its parts: status, headers, body, record, and that it cost what it says.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2

from terraflow.core.reasons import Governed, Kind, ModelApi, reason
from terraflow.core.types import usd
from tests.harness.caller import CANARY, Caller, Streamed
from tests.harness.mouths import CHAT, Mouth, mouth_of
from tests.harness.promised import FACTS, REQUEST_ID, UNGOVERNED_FACTS
from tests.raised import Raised

Json = dict[str, Any]


class Checks:
    """The checks of one test."""

    def __init__(self, raised: Raised) -> None:
        self.raised = raised

    def refused(
        self,
        caller: Caller,
        response: httpx2.Response,
        code: Governed,
        *,
        detail: str = "",
        cost: int = 0,
        capability: str | None = None,
        retry_after: bool = False,
        recorded: bool = True,
    ) -> Json:
        """A governed refusal; gives the body's `terraflow` object. `recorded` False: the store was not there."""
        assert self.raised(response) is code, response.text
        row, headers = reason(code), response.headers
        assert response.status_code == row.status
        assert CANARY.encode() not in response.content
        assert headers["content-type"] == "application/json"
        assert headers["x-terraflow-reason"] == code
        assert REQUEST_ID.fullmatch(headers["x-terraflow-request-id"])
        assert headers["x-terraflow-cost-usd"] == usd(cost)
        assert headers.get("x-terraflow-capability") == capability
        assert {"x-terraflow-savings-usd", "x-terraflow-idempotent-replay"}.isdisjoint(headers)
        self._retry(response, retry_after, row.retry)
        body = response.json()
        mouth = mouth_of(response.url.path)
        assert headers[mouth.id_header] == headers["x-terraflow-request-id"]
        self._error(mouth, body, response.status_code, code)
        facts: Json = body["terraflow"]
        assert set(facts) == FACTS
        assert facts["request_id"] == headers["x-terraflow-request-id"]
        assert facts["reason_code"] == code
        assert facts["reasons"] == [code]
        assert facts["detail"] == detail
        assert facts["capability"] == capability
        assert facts["cost_usd"] == usd(cost)
        if recorded:
            self.recorded(caller, response, code, cost=cost, detail=detail)
        return facts

    def answered(
        self,
        caller: Caller,
        response: httpx2.Response,
        code: Governed = Governed.PERMITTED,
        *,
        capability: str,
        cost: int | None = None,
        also: tuple[Governed, ...] = (Governed.PERMITTED,),
    ) -> Json:
        """A whole governed answer; gives its body. `cost` None: whatever its usage costs, recorded alike."""
        assert self.raised(response) is code, response.text
        headers = response.headers
        assert response.status_code == 200
        assert headers["x-terraflow-reason"] == code
        assert headers["x-terraflow-capability"] == capability
        assert {"retry-after", "x-should-retry"}.isdisjoint(headers)
        body: Json = response.json()
        mouth, request_id = mouth_of(response.url.path), headers["x-terraflow-request-id"]
        assert headers[mouth.id_header] == request_id
        read, written = mouth.answer(body, request_id, capability)
        facts = body["terraflow"]
        assert facts["request_id"] == headers["x-terraflow-request-id"]
        assert facts["reason_code"] == code
        assert set(facts["reasons"]) == {code, *also}
        assert facts["cost_usd"] == headers["x-terraflow-cost-usd"]
        if cost is None:
            cost = read + 2 * written
        assert facts["cost_usd"] == usd(cost)
        self.recorded(caller, response, code, cost=cost)
        return body

    def replayed(self, caller: Caller, response: httpx2.Response, original: httpx2.Response) -> Json:
        """The answer or the refusal of an earlier request, given again; gives the body."""
        code = Governed.IDEMPOTENCY_REPLAY
        first, headers = original.headers, response.headers
        streamed = not headers["content-type"].startswith("application/json")
        body_bytes, path = b"" if streamed else response.content, response.url.path
        assert self.raised.wire(response.status_code, headers, body_bytes, path) is code
        assert response.status_code == original.status_code
        assert headers["x-terraflow-reason"] == code
        assert headers["x-terraflow-idempotent-replay"] == "true"
        assert headers["x-terraflow-cost-usd"] == "0"
        assert headers["x-terraflow-request-id"] != first["x-terraflow-request-id"]
        assert headers.get("x-terraflow-capability") == first.get("x-terraflow-capability")
        outcome = self.recorded(caller, response, code)
        assert outcome["original_request_id"] == first["x-terraflow-request-id"]
        assert outcome["status"] == original.status_code
        if streamed:
            return {}
        body: Json = response.json()
        facts = body["terraflow"]
        assert facts["reason_code"] == code
        assert facts["original_reason_code"] == original.json()["terraflow"]["reason_code"]
        assert facts["original_request_id"] == first["x-terraflow-request-id"]
        assert facts["cost_usd"] == "0"
        for field in ("model", "choices", "content", "stop_reason", "usage"):
            assert body.get(field) == original.json().get(field)
        return body

    def item(self, caller: Caller, mouth: Mouth, response: Json, code: Governed) -> Json:
        """An answer or a refusal of a batch's item, which has no headers of its own; gives the body's `terraflow`
        object."""
        assert self.raised.item(response) is code
        assert CANARY not in str(response)
        body, row = response["body"], reason(code)
        facts: Json = body["terraflow"]
        assert (response["status_code"], facts["reason_code"]) == (row.status, code)
        assert facts["request_id"] == response["request_id"]
        if row.kind is Kind.PRODUCED_ANSWER:
            mouth.answer(body, response["request_id"], facts["capability"])
        else:
            self._error(mouth, body, response["status_code"], code)
            assert set(facts) == FACTS
            assert facts["reasons"] == [code]
        outcome = self.outcome(caller, response["request_id"], code)
        assert facts["cost_usd"] == usd(outcome.get("cost_micro_usd", 0))
        return facts

    def ungoverned_item(self, mouth: Mouth, response: Json, code: ModelApi, field: str | None = None) -> None:
        """An item that was refused before it was governed: the code is in the error alone."""
        assert self.raised.item(response) is code
        assert CANARY not in str(response)
        body, row = response["body"], reason(code)
        assert response["status_code"] == row.status
        self._error(mouth, body, response["status_code"], code, param=field)
        assert set(body["terraflow"]) == UNGOVERNED_FACTS
        assert body["terraflow"]["request_id"] == response["request_id"]

    def broken(self, caller: Caller, streamed: Streamed, events: list[str], code: Governed, detail: str) -> Json:
        """A stream that ended in an error event of its mouth's; gives the recorded outcome."""
        assert "[DONE]" not in events
        *before, last = (json.loads(event) for event in events)
        assert not any(event.get("type") == "message_stop" for event in before)
        mouth, row = mouth_of(streamed.response.url.path), reason(code)
        assert row.status is not None
        self._error(mouth, last, row.status, code)
        facts = last["terraflow"]
        assert (facts["reason_code"], facts["request_id"]) == (code, streamed.request_id)
        assert CANARY not in str(last)
        outcome = self.outcome(caller, streamed.request_id, code, detail=detail)
        assert facts["cost_usd"] == usd(outcome.get("cost_micro_usd", 0))
        return outcome

    def recorded(
        self, caller: Caller, response: httpx2.Response, code: Governed, *, cost: int = 0, detail: str = ""
    ) -> Json:
        """The request's record: intent and outcome, with this code and cost; gives the outcome."""
        return self.outcome(caller, response.headers["x-terraflow-request-id"], code, cost=cost, detail=detail)

    def outcome(
        self, caller: Caller, request_id: str, code: Governed, *, cost: int | None = None, detail: str | None = None
    ) -> Json:
        """What was recorded of a request, by its id; `cost` or `detail` None are not compared."""
        found = caller.evidence(request_id)
        assert CANARY not in str(found)
        assert [part["kind"] for part in found["records"]] == ["intent", "outcome"]
        outcome: Json = found["outcome"]
        self.raised.code(code, outcome)
        assert outcome["reason_code"] == code
        assert outcome["status"] == reason(code).status or code is Governed.IDEMPOTENCY_REPLAY
        posted = outcome.get("cost_micro_usd", 0)
        assert posted == sum(attempt.get("cost_micro_usd", 0) for attempt in outcome.get("attempts", ()))
        if cost is not None:
            assert posted == cost
        if detail is not None:
            assert outcome.get("detail", "") == detail
        return outcome

    def ungoverned(
        self, response: httpx2.Response, code: Governed | ModelApi, *, field: str | None = None, named: bool = True
    ) -> Json:
        """An error from before governance: no reason header, no cost; `named` says whether it has a request id.
        Gives its first problem, if it has one."""
        assert self.raised(response) is code, response.text
        parts = (response.status_code, dict(response.headers), response.json(), code, field, named)
        self.ungoverned_parts(*parts, mouth_of(response.url.path))
        assert CANARY.encode() not in response.content
        problems: list[Json] = response.json()["terraflow"]["details"]["problems"]
        assert len(problems) <= 3
        return problems[0] if problems else {}

    def ungoverned_parts(
        self,
        status: int,
        headers: dict[str, str],
        body: Json,
        code: Governed | ModelApi,
        field: str | None,
        named: bool,
        mouth: Mouth = CHAT,
    ) -> None:
        """The same of a response in its parts."""
        assert status == reason(code).status
        assert {"x-terraflow-reason", "x-terraflow-cost-usd", "x-terraflow-capability"}.isdisjoint(headers)
        assert (headers.get("x-should-retry") == "false") is (not reason(code).retry and "retry-after" not in headers)
        assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        assert ("x-terraflow-request-id" in headers) is named
        if named:
            assert REQUEST_ID.fullmatch(headers["x-terraflow-request-id"])
            assert headers[mouth.id_header] == headers["x-terraflow-request-id"]
        self._error(mouth, body, status, code, param=field)
        facts = body["terraflow"]
        assert set(facts) == UNGOVERNED_FACTS
        assert facts["request_id"] == headers.get("x-terraflow-request-id")

    @staticmethod
    def _retry(response: httpx2.Response, retry_after: bool, retry: bool) -> None:
        headers = response.headers
        assert ("retry-after" in headers) is retry_after
        if retry_after:
            assert int(headers["retry-after"]) >= 1
        assert (headers.get("x-should-retry") == "false") is (not retry and not retry_after)

    @staticmethod
    def _error(mouth: Mouth, body: Json, status: int, code: Governed | ModelApi, param: str | None = None) -> None:
        mouth.error(body, status, reason(code).meaning, param)
        assert body["error"]["code"] == code
