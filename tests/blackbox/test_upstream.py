"""A model that is down, slow, cut off, wrong in shape or hostile: a clear error with the right code, and nothing of
what it said in it. Whatever a vendor says here holds the canary."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import CANARY, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, Upstreams, answer, chunk, completion, flow, text
from tests.providers.vendor import Reply, Request, Vendor, hangs_up, head, says, silence

UNRECOVERED = Governed.PROVIDER_ERROR_UNRECOVERED
REJECTED = Governed.PROVIDER_REJECTED_REQUEST
FILTERED = Governed.CONTENT_FILTERED


def _error(**fields: object) -> dict[str, object]:
    return {"error": {"message": f"{CANARY} is not allowed", "type": CANARY, "param": None, "code": None} | fields}


def _raw(*pieces: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(b"".join(pieces))
        await writer.drain()
        writer.close()

    return reply


class Case(NamedTuple):
    """What a vendor does, and what comes of it: `tries` calls, each posted at its worst case if `paid`, or at our count
    of its input if the vendor `read` it."""

    name: str
    reply: Reply
    detail: str
    code: Governed = UNRECOVERED
    tries: int = 1
    paid: bool = False
    read: bool = False


_WHOLE = json.dumps(completion(CANARY)).encode()
_LENGTH = f"Content-Length: {len(_WHOLE)}"
_JSON = "Content-Type: application/json"
_UNFINISHED = completion(CANARY) | {"choices": [{"index": 0, "message": {"content": CANARY}, "finish_reason": None}]}

# fmt: off
WHOLE = (
    Case("hangs up",        hangs_up, "cut_off", tries=3, paid=True),
    Case("500",             says(500, _error()), "server_error", tries=3),
    Case("502 as HTML",     says(502, f"<html>{CANARY}".encode()), "server_error", tries=3),
    Case("503",             says(503, _error()), "overloaded", tries=3),
    Case("529",             says(529, _error()), "overloaded", tries=3),
    Case("429",             says(429, _error()), "rate_limited", tries=3),
    Case("429, in vain",    says(429, _error(), "X-Should-Retry: false"), "rate_limited"),
    Case("500, in vain",    says(500, _error(), "X-Should-Retry: false"), "server_error"),
    Case("500, not",        says(500, _error(), "X-Should-Retry: true"), "server_error", tries=3),
    Case("429, later",      says(429, _error(), "Retry-After: 3000"), "rate_limited"),
    Case("no quota",        says(429, _error(code="insufficient_quota")), "authentication"),
    Case("401",             says(401, _error()), "authentication"),
    Case("403",             says(403, _error()), "authentication"),
    Case("404",             says(404, _error()), "model_not_found"),
    Case("400, nothing",    says(400, _error()), "rejected_content", REJECTED),
    Case("400, no JSON",    says(400, CANARY.encode()), "rejected_content", REJECTED),
    Case("400, messages",   says(400, _error(param="messages[0].content")), "rejected_content", REJECTED),
    Case("413",             says(413, _error()), "rejected_content", REJECTED),
    Case("422",             says(422, _error(param="tools")), "rejected_content", REJECTED),
    Case("400, other field", says(400, _error(param="seed")), "mismatch"),
    Case("400, unknown",    says(400, _error(param=CANARY)), "mismatch"),
    Case("filtered",        says(400, _error(code="content_filter")), "content_filtered", FILTERED, read=True),
    Case("redirect",        says(307, b"", "Location: http://127.0.0.1:1/v1"), "malformed"),
    Case("200, an error",   says(200, _error(type="server_error")), "server_error", tries=3),
    Case("200, no JSON",    says(200, CANARY.encode()), "malformed", paid=True),
    Case("200, empty",      says(200, b""), "malformed", paid=True),
    Case("200, a list",     says(200, [CANARY]), "malformed", paid=True),
    Case("200, no choices", says(200, {"choices": []}), "malformed", paid=True),
    Case("200, a twin",     says(200, completion(CANARY) | {"choices": completion(CANARY)["choices"] * 2}), "malformed",
         paid=True),
    Case("200, bad choice", says(200, {"choices": [{"index": 0, "message": CANARY}]}), "malformed", paid=True),
    Case("200, bad usage",  says(200, completion(CANARY) | {"usage": {"prompt_tokens": -5}}), "malformed", paid=True),
    Case("200, unfinished", says(200, _UNFINISHED), "cut_off", tries=3, paid=True),
    Case("200, deep",       says(200, b'{"choices":' + b"[" * 100_000), "malformed", paid=True),
    Case("200, gzip",       says(200, b"\x1f\x8b", "Content-Encoding: gzip"), "malformed", paid=True),
    Case("cut midway",      _raw(head(200, _JSON, _LENGTH), _WHOLE[:40]), "cut_off", tries=3, paid=True),
    Case("no HTTP",         _raw(CANARY.encode() + b"\r\n\r\n"), "malformed", paid=True),
    Case("wide head",       _raw(head(200, f"X-Wide: {CANARY * 2000}"), b"{}"), "malformed", paid=True),
)
STREAMED = (
    Case("hangs up",        hangs_up, "cut_off", tries=3, paid=True),
    Case("503",             says(503, _error()), "overloaded", tries=3),
    Case("503, in vain",    says(503, _error(), "X-Should-Retry: false"), "overloaded"),
    Case("400, nothing",    says(400, _error()), "rejected_content", REJECTED),
    Case("no event",        flow(), "cut_off", tries=3, paid=True),
    Case("200, an error",   says(200, _error(type="server_error")), "server_error", tries=3),
    Case("200, an answer",  says(200, completion(CANARY)), "malformed", paid=True),
    Case("[DONE] alone",    flow(b"data: [DONE]\n\n"), "cut_off", tries=3, paid=True),
    Case("an error first",  flow(b"data: " + json.dumps(_error()).encode() + b"\n\n"), "malformed", paid=True),
    Case("no JSON",         flow(f"data: {CANARY}\n\n".encode()), "malformed", paid=True),
    Case("wrong shape",     flow(chunk({"content": [CANARY]})), "malformed", paid=True),
    Case("endless line",    flow(b"data: " + CANARY.encode() * 600_000), "malformed", paid=True),
)
# fmt: on


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    document = bundle.document(purpose("plain", remote("engine", vendor.port)))
    return launch_shared(document, health_faults_max=10_000, health_retry_after_max_s=0)


def _check(case: Case, site: Site, vendor: Vendor, checks: Checks, *, stream: bool) -> None:
    vendor.replies[:] = [case.reply]
    calls = len(vendor.requests)
    response = site.caller.ask(stream=stream)
    request_id = response.headers["x-terraflow-request-id"]
    found = site.caller.evidence(request_id)
    reserved = found["decision"]["reserved_micro_usd"]
    cost = case.tries * reserved if case.paid else 0
    if case.read:
        cost = -(-found["decision"]["request"]["bytes"] // 4)
    checks.refused(site.caller, response, case.code, detail=case.detail, cost=cost)
    assert len(found["outcome"]["attempts"]) == case.tries
    assert len(vendor.requests) == calls + case.tries


@every_mouth
@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_a_whole_answer_that_fails(case: Case, site: Site, vendor: Vendor, checks: Checks) -> None:
    _check(case, site, vendor, checks, stream=False)


@every_vendor_mouth
@pytest.mark.parametrize("case", STREAMED, ids=lambda case: case.name)
def test_a_stream_that_fails_before_its_first_chunk(case: Case, site: Site, vendor: Vendor, checks: Checks) -> None:
    _check(case, site, vendor, checks, stream=True)


@every_mouth
def test_an_answer_that_the_vendor_filtered_is_not_released(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [answer(CANARY, finish_reason="content_filter")]
    code = Governed.CONTENT_FILTERED
    checks.refused(site.caller, site.caller.ask(), code, detail="answer", cost=COST, capability="engine")


@every_mouth
def test_a_vendor_that_is_down(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", remote("engine", 9))))
    response = site.caller.ask()
    checks.refused(site.caller, response, UNRECOVERED, detail="connect")


@every_mouth
@pytest.mark.parametrize("stream", [False, True])
def test_a_vendor_that_never_answers(stream: bool, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [silence]
    left = len(vendor.closed_at)
    response = site.caller.ask(headers=headers_of(deadline_ms=200), stream=stream)
    reserved = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]["reserved_micro_usd"]
    checks.refused(site.caller, response, Governed.DEADLINE_EXPIRED, detail="timeout", cost=reserved)
    until(lambda: len(vendor.closed_at) > left)


def test_a_vendor_that_drips_its_answer_is_left_at_the_deadline(site: Site, vendor: Vendor, checks: Checks) -> None:
    async def drips(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(200, _JSON, _LENGTH))
        for byte in _WHOLE:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    vendor.replies[:] = [drips]
    response = site.caller.ask(headers=headers_of(deadline_ms=300))
    reserved = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]["reserved_micro_usd"]
    checks.refused(site.caller, response, Governed.DEADLINE_EXPIRED, detail="timeout", cost=reserved)


@every_mouth
def test_the_caller_leaves_a_whole_answer_and_the_vendor_is_left_at_once(
    site: Site, vendor: Vendor, checks: Checks
) -> None:
    vendor.replies[:] = [silence]
    calls, left = len(vendor.requests), len(vendor.closed_at)
    request_id = site.caller.leave(lambda: len(vendor.requests) > calls)
    until(lambda: len(vendor.closed_at) > left)
    reserved = site.caller.evidence(request_id)["decision"]["reserved_micro_usd"]
    outcome = checks.outcome(site.caller, request_id, Governed.CANCELLED, cost=reserved, detail="caller_left")
    assert outcome["attempts"][0]["estimated"] is True


def test_what_is_sent_is_what_was_scanned_and_nothing_of_the_callers_headers(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [answer()]
    extra = {"X-Forwarded-For": CANARY, "Cookie": CANARY, "OpenAI-Organization": CANARY}
    fields = {"seed": 7, "metadata": {"a": "b"}, "logit_bias": {"5": 1}, "prompt_cache_key": "k", "min_p": 0.1}
    response = site.caller.ask(headers=extra, model="gpt-4o", max_tokens=17, **fields)
    assert response.status_code == 200
    sent = vendor.requests[-1]
    assert sent.line == "POST /v1/chat/completions HTTP/1.1"
    assert {field: sent.body[field] for field in fields} == fields
    assert (sent.body["model"], sent.body["max_tokens"]) == ("engine-model", 17)
    assert "stream" not in sent.body
    assert not any(CANARY in value or site.caller.api_key in value for _, value in sent.headers)


def test_who_does_not_say_how_much_has_the_room_that_the_contract_gives(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [answer()]
    assert site.caller.ask().status_code == 200
    assert vendor.requests[-1].body["max_tokens"] == 100


def test_a_stream_is_asked_for_its_usage_always(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(text("a"), chunk({}, "stop"), b"data: [DONE]\n\n")]
    with site.caller.stream("plain") as streamed:
        streamed.rest()
    sent = vendor.requests[-1].body
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
