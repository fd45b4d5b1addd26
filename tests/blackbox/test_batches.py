"""Batches against the real process: what is accepted, how each item ends, what becomes of a batch."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import parse_usd
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import answer_key, create, ended, joined, line, lines_of, made, now, results
from tests.harness.bundle import Json, limit, purpose, remote, sim
from tests.harness.caller import CANARY, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held

NIGHT: Json = {"priority": 3}
ASKED_TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
ASKED_SCHEMA: Json = {
    "type": "json_schema",
    "json_schema": {"name": "total", "schema": {"type": "object", "required": ["total"]}},
}


def _document() -> Json:
    return bundle.document(
        purpose("night", sim("a"), **NIGHT),
        purpose("day", sim("b")),
        purpose("down", sim("fails", {"fail": "authentication"}), **NIGHT),
        purpose("poor", sim("c"), **NIGHT),
        purpose("keyed", sim("d"), require_idempotency=True, **NIGHT),
        purpose("extract", sim("e", {"text": "no JSON"}), output={"requested_schema": True}, **NIGHT),
        purpose("withheld", sim("f"), **NIGHT),
        purpose("theirs", sim("g"), tenant="umbra", **NIGHT),
        withheld=("withheld",),
        budgets=[limit("workload", "poor", "hour", "0.000001")],
    )


@pytest.fixture(scope="module")
def site(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Site:
    key = answer_key(tmp_path_factory.mktemp("key") / "key")
    return launch_shared(_document(), answer_key_file=key, health_faults_max=10_000, batch_items_max=500)


@pytest.fixture
def client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0, timeout=20) as made:
        yield made


def _alone(launch: Launch, tmp_path: Path, document: Json, **settings: Any) -> Site:
    return launch(document, answer_key_file=answer_key(tmp_path / "key"), **settings)


# The way of a batch.


def test_openais_client_makes_a_batch_of_a_file(client: openai.OpenAI, site: Site, checks: Checks) -> None:
    lines = joined(line(f"item {no}", text=f"number {no}") for no in range(120))
    file = client.files.create(file=("asked.jsonl", io.BytesIO(lines)), purpose="batch")
    assert (file.bytes, file.filename, file.purpose) == (len(lines), "asked.jsonl", "batch")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == lines
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"for": f"the report {CANARY}"},
    )
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert (batch.endpoint, batch.input_file_id, batch.completion_window) == ("/v1/chat/completions", file.id, "24h")
    assert batch.expires_at == batch.created_at + 86_400
    until(lambda: client.batches.retrieve(batch.id).status == "completed")
    done = client.batches.retrieve(batch.id)
    assert done.metadata == {"for": f"the report {CANARY}"}
    assert done.request_counts is not None and done.request_counts.to_dict() == {
        "total": 120,
        "completed": 120,
        "failed": 0,
    }
    assert done.error_file_id is None and done.output_file_id is not None
    assert done.completed_at and done.finalizing_at and done.in_progress_at
    output = [json.loads(each) for each in client.files.content(done.output_file_id).text.splitlines()]
    assert {each["custom_id"] for each in output} == {f"item {no} {CANARY}" for no in range(120)}
    assert len({each["response"]["request_id"] for each in output}) == 120
    for each in output[:3]:
        said = openai.types.chat.ChatCompletion.model_validate(each["response"]["body"])
        assert (said.model, said.choices[0].finish_reason) == ("a", "stop")
        outcome = checks.outcome(site.caller, each["response"]["request_id"], Governed.PERMITTED)
        cost = each["response"]["body"]["terraflow"]["cost_usd"]
        assert parse_usd(cost) == outcome["cost_micro_usd"]
    assert client.files.retrieve(done.output_file_id).filename == f"{batch.id}_output.jsonl"


def test_every_item_is_governed_on_its_own(site: Site, checks: Checks) -> None:
    batch = made(
        site.caller,
        line("fine"),
        line("keyed", "keyed"),
        line("tools", tools=ASKED_TOOLS),
        line("down", "down"),
        line("poor", "poor"),
        line("withheld", "withheld"),
        line("garbled", "extract", response_format=ASKED_SCHEMA),
        line("pinned", "b"),
        line("hot", temperature=9),
    )
    assert (batch["status"], batch["input_file_id"], batch["output_file_id"]) == ("in_progress", "", None)
    batch = ended(site.caller, batch)
    assert batch["request_counts"] == {"total": 9, "completed": 2, "failed": 7}
    found = results(site.caller, batch)
    expected = {
        "fine": Governed.PERMITTED,
        "keyed": Governed.PERMITTED,
        "tools": Governed.TOOL_NOT_PERMITTED,
        "down": Governed.PROVIDER_ERROR_UNRECOVERED,
        "poor": Governed.BUDGET_EXHAUSTED,
        "withheld": Governed.APP_NOT_ENTITLED_TO_WORKLOAD,
        "garbled": Governed.VALIDATION_BLOCKED,
        "pinned": Governed.CAPABILITY_NOT_IN_CONTRACT,
    }
    for name, code in expected.items():
        response = found[name]["response"]
        facts = response["body"]["terraflow"]
        assert facts["request_id"] == response["request_id"]
        assert facts["reason_code"] == code
        outcome = checks.outcome(site.caller, response["request_id"], code)
        assert outcome["status"] == response["status_code"]
    response = found["hot"]["response"]
    assert (response["status_code"], response["body"]["error"]["code"]) == (400, ModelApi.INVALID_REQUEST)
    assert response["body"]["error"]["param"] == "temperature"
    assert site.caller.get(f"/evidence/{response['request_id']}").status_code == 404


def test_a_batch_of_messages_is_answered_in_their_shape(site: Site) -> None:
    body = {"model": "night", "max_tokens": 50, "messages": [{"role": "user", "content": f"Hello {CANARY}"}]}
    good = {"custom_id": "good", "method": "POST", "url": "/v1/messages", "body": body}
    bad = good | {"custom_id": "bad", "body": body | {"max_tokens": 0}}
    batch = ended(site.caller, made(site.caller, good, bad))
    assert batch["endpoint"] == "/v1/messages"
    found = results(site.caller, batch)
    assert found["good"]["response"]["body"]["type"] == "message"
    assert found["bad"]["response"]["body"]["error"]["code"] == ModelApi.INVALID_REQUEST
    assert found["bad"]["response"]["body"]["type"] == "error"


def _invocation(custom_id: str, **fields: Any) -> Json:
    body = {"input": f"Hello {CANARY}"} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/invocations", "body": body}


def test_a_batch_of_invocations_declares_in_its_bodies(site: Site, checks: Checks) -> None:
    good = _invocation("good", workload="keyed", data_class="confidential", deadline_ms=5_000, run={"id": "nightly"})
    contradicts = _invocation("contradicts", workload="poor")
    batch = ended(site.caller, made(site.caller, good, contradicts, headers=headers_of("keyed")))
    found = results(site.caller, batch)
    response = found["good"]["response"]
    assert response["body"]["terraflow"]["capability"] == "d"
    decision = site.caller.evidence(response["request_id"])["decision"]
    assert (decision["workload"], decision["run"]) == ("keyed", {"id": "nightly"})
    assert (decision["request"]["declared_class"], decision["request"]["deadline_ms"]) == ("confidential", 5_000)
    assert found["contradicts"]["response"]["body"]["error"]["param"] == "workload"
    above = create(site.caller, _invocation("a", workload="day"))
    checks.ungoverned(above, ModelApi.BATCH_REQUIRES_P3, field="lines[1].body")
    unknown = create(site.caller, _invocation("a", workload="no-such"))
    assert (checks.raised(unknown), unknown.status_code) == (Governed.UNKNOWN_WORKLOAD, 404)
    assert unknown.json()["error"]["param"] == "lines[1].body.workload"


def test_what_the_headers_declare_holds_for_every_item(site: Site) -> None:
    headers = headers_of("night", data_class="restricted", types="pci")
    batch = ended(site.caller, made(site.caller, line("one", None), line("two", "day"), headers=headers))
    for result in results(site.caller, batch).values():
        decision = site.caller.evidence(result["response"]["request_id"])["decision"]
        assert decision["workload"] == "night"
        assert (decision["request"]["declared_class"], decision["request"]["declared_types"]) == ("restricted", ["pci"])
        assert decision["priority"] == 3


def test_batches_are_listed_newest_first_page_by_page(client: openai.OpenAI, site: Site) -> None:
    ids = [made(site.caller, line("a"))["id"] for _ in range(5)]
    page = client.batches.list(limit=2)
    assert [batch.id for batch in page.data] == ids[:2:-1]
    assert page.has_more
    every = [batch.id for batch in client.batches.list(limit=2)]
    assert every[:5] == ids[::-1] and len(every) == len(set(every))


def test_files_are_listed_page_by_page(launch: Launch, tmp_path: Path, checks: Checks) -> None:
    """Those that were uploaded and those of results, in the order in which they came to be."""
    site = _alone(launch, tmp_path, bundle.document(purpose("night", sim("a"), **NIGHT)))
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0, timeout=20) as client:
        assert client.files.list().data == []
        uploaded = [
            client.files.create(file=(f"asked {n}.jsonl", io.BytesIO(joined([line("a")]))), purpose="batch")
            for n in range(3)
        ]
        mixed = [line("good"), line("bad", messages=7)]
        batches = [ended(site.caller, made(site.caller, *mixed)) for _ in range(2)]
        results = [client.files.retrieve(batch[f"{kind}_file_id"]) for batch in batches for kind in ("error", "output")]
        oldest_first = [*uploaded, *results]
        for order, expected in (("desc", oldest_first[::-1]), ("asc", oldest_first)):
            for limit in (1, 2, 3, 10_000):
                assert list(client.files.list(order=order, limit=limit)) == expected
        first = client.files.list(limit=3)
        assert (first.has_more, first.first_id, first.last_id) == (True, results[3].id, results[1].id)
        assert list(client.files.list()) == oldest_first[::-1]
        assert list(client.files.list(purpose="batch", limit=2)) == uploaded[::-1]
        assert list(client.files.list(purpose="batch_output", limit=3)) == results[::-1]
        assert list(client.files.list(purpose="vision")) == []
        client.files.delete(uploaded[1].id)
        assert list(client.files.list(purpose="batch", order="asc")) == [uploaded[0], uploaded[2]]
        for after in (uploaded[1].id, "file-1", "batch_" + "0" * 32):
            with pytest.raises(openai.NotFoundError):
                client.files.list(after=after)
    limits, orders = ("limit=0", "limit=10001", "limit=x"), ("order=up",)
    unread = ("limit=1&limit=1", "after=", "before=x", "a%20=1")
    for field, queries in {"limit": limits, "order": orders, "query": unread}.items():
        for query in queries:
            checks.ungoverned(site.caller.get(f"/files?{query}"), ModelApi.INVALID_REQUEST, field=field)


# What is not accepted.


@pytest.mark.parametrize(
    ("lines", "headers", "code", "field"),
    [
        ([line("a"), line("b"), line("a")], None, ModelApi.DUPLICATE_CUSTOM_ID, "lines[3].custom_id"),
        ([line("a"), line("b", "day"), line("c", "day")], None, ModelApi.BATCH_REQUIRES_P3, "lines[2].body"),
        ([line("a", None)], headers_of("day"), ModelApi.BATCH_REQUIRES_P3, None),
    ],
)
def test_a_batch_is_accepted_whole_or_not_at_all(
    lines: list[Json], headers: dict[str, str] | None, code: ModelApi, field: str | None, site: Site, checks: Checks
) -> None:
    before = _ids(site)
    response = create(site.caller, *lines, headers=headers)
    checks.ungoverned(response, code, field=field)
    assert _ids(site) == before


def _ids(site: Site) -> list[str]:
    return [batch["id"] for batch in site.caller.get("/batches?limit=100").json()["data"]]


@pytest.mark.parametrize("named", ["no-such", "theirs"])
def test_a_workload_that_is_not_there(named: str, site: Site, checks: Checks) -> None:
    response = create(site.caller, line("a", None), headers=headers_of(named))
    assert checks.raised(response) is Governed.UNKNOWN_WORKLOAD
    assert response.status_code == 404
    assert "x-terraflow-reason" not in response.headers
    assert response.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ([], "lines"),
        ([b" "], "lines"),
        ([line("a")] * 501, "lines"),
        ([line("a"), b"{"], "lines[2]"),
        ([b'{"custom_id":"a","custom_id":"b"}'], "lines[1]"),
        ([b"[]"], "lines[1]"),
        ([line("a") | {"more": 1}], "lines[1]"),
        ([line("a"), b"", line("b") | {"custom_id": ""}], "lines[3].custom_id"),
        ([line("a") | {"custom_id": 7}], "lines[1].custom_id"),
        ([line("a") | {"custom_id": "x" * 513}], "lines[1].custom_id"),
        ([line("a") | {"method": "GET"}], "lines[1].method"),
        ([line("a") | {"url": "/v1/embeddings"}], "lines[1].url"),
        ([line("a"), line("b") | {"url": "/v1/messages"}], "lines[2].url"),
        ([line("a") | {"body": "text"}], "lines[1].body"),
        ([line("a"), line("b", stream=True)], "lines[2].body.stream"),
        ([b"\xef\xbb\xbf" + joined([line("a")])], "lines[1]"),
    ],
)
def test_lines_that_cannot_be_read(lines: list[Any], field: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(create(site.caller, *lines), ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input_file_id": "file-" + "0" * 32}, "input_file_id"),
        ({"input_file_id": 7}, "input_file_id"),
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"endpoint": "/v1/messages"}, "lines[1].url"),
        ({"completion_window": "25h"}, "completion_window"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 3600}}, "body"),
    ],
)
def test_an_object_that_cannot_be_read(
    body: Json, field: str, client: openai.OpenAI, site: Site, checks: Checks
) -> None:
    file = client.files.create(file=("a.jsonl", joined([line("a")])), purpose="batch")
    good = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    response = site.caller.post(good | body, path="/batches")
    checks.ungoverned(response, ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize(
    "header", ["Idempotency-Key", "X-TerraFlow-Deadline-Ms", "X-TerraFlow-Run-Id", "X-TerraFlow-Run-Budget-Usd"]
)
def test_headers_of_one_request_are_not_for_batches(header: str, site: Site, checks: Checks) -> None:
    response = create(site.caller, line("a"), headers={header: "1"})
    checks.ungoverned(response, ModelApi.INVALID_REQUEST, field=header.lower())


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=two", "limit=1&limit=2", "order=asc", "after="])
def test_a_query_that_cannot_be_read(query: str, site: Site, checks: Checks) -> None:
    response = site.caller.get(f"/batches?{query}")
    field = "limit" if query in ("limit=0", "limit=101", "limit=two") else "query"
    checks.ungoverned(response, ModelApi.INVALID_REQUEST, field=field)


@pytest.mark.parametrize("purpose_of_it", ["fine-tune", ""])
def test_files_are_for_batches_alone(purpose_of_it: Any, client: openai.OpenAI, checks: Checks) -> None:
    with pytest.raises(openai.BadRequestError) as met:
        client.files.create(file=("a.jsonl", b"a"), purpose=purpose_of_it)
    checks.ungoverned(met.value.response, ModelApi.INVALID_REQUEST, field="purpose")


@pytest.mark.parametrize(
    ("content_type", "body", "field"),
    [
        ("application/json", b"{}", "content-type"),
        ("multipart/form-data", b"", "content-type"),
        ("multipart/form-data; boundary=x", b"", "body"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", "body"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--", "body"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\na', "body"),
    ],
)
def test_a_form_that_cannot_be_read(content_type: str, body: bytes, field: str, site: Site, checks: Checks) -> None:
    response = site.caller.post(body, {"Content-Type": content_type}, "/files")
    checks.ungoverned(response, ModelApi.INVALID_REQUEST, field=field)


def test_a_class_or_a_type_that_is_none(site: Site, checks: Checks) -> None:
    response = create(site.caller, line("a"), headers=headers_of(data_class="secret"))
    checks.ungoverned(response, ModelApi.INVALID_DATA_CLASS)
    response = create(site.caller, line("a"), headers=headers_of(types="secret"))
    checks.ungoverned(response, ModelApi.INVALID_SENSITIVE_TYPE)


def test_lines_of_another_content_type_are_told_which_there_are(site: Site, checks: Checks) -> None:
    for content_type in ("application/x-www-form-urlencoded", "text/plain"):
        response = site.caller.post(joined([line("a")]), {"Content-Type": content_type}, "/batches")
        problem = checks.ungoverned(response, ModelApi.INVALID_REQUEST, field="content-type")
        assert problem["rule"] == "must be application/json, or application/jsonl of lines, in UTF-8"


@pytest.mark.parametrize("path", ["/batches", "/files"])
def test_no_key_of_this_plane(path: str, site: Site, checks: Checks) -> None:
    response = site.caller_with("tf_wrong").post(joined([line("a")]), {"Content-Type": "application/jsonl"}, path)
    checks.ungoverned(response, Governed.APP_UNAUTHENTICATED, named=False)
    elsewhere = site.caller.post(b"", path=f"{path}/batch_1/elsewhere")
    checks.ungoverned(elsewhere, ModelApi.NOT_FOUND)


def test_no_bundle_is_in_force(launch: Launch, tmp_path: Path) -> None:
    site = launch(None, answer_key_file=answer_key(tmp_path / "key"))
    response = create(site.caller, line("a"))
    assert (response.status_code, response.json()["error"]["code"]) == (503, Governed.BUNDLE_INVALID)


@pytest.mark.parametrize("path", ["/batches", "/files/file-1"])
def test_a_store_that_is_gone_or_at_fault(path: str, launch: Launch, tmp_path: Path) -> None:
    document = bundle.document(purpose("night", sim("a"), **NIGHT))
    site = _alone(launch, tmp_path, document, faults=True)
    expected = {"find_key": (503, Governed.EVIDENCE_UNAVAILABLE), "find_key broken": (500, Governed.INTERNAL_ERROR)}
    for fault, status_and_code in expected.items():
        with site.plane.fault(fault):
            response = site.caller.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == status_and_code


# Whose it is.


def test_batches_and_files_of_others_are_not_there(site: Site, client: openai.OpenAI, checks: Checks) -> None:
    file = client.files.create(file=("a.jsonl", joined([line("a")])), purpose="batch")
    batch = ended(site.caller, made(site.caller, line("a")))
    for key in (site.folder.issue_key("umbra"), site.folder.issue_key(application="another")):
        other = site.caller_with(key)
        checks.ungoverned(other.get(f"/batches/{batch['id']}"), ModelApi.BATCH_NOT_FOUND)
        checks.ungoverned(other.post(b"", path=f"/batches/{batch['id']}/cancel"), ModelApi.BATCH_NOT_FOUND)
        checks.ungoverned(other.get(f"/batches?after={batch['id']}"), ModelApi.BATCH_NOT_FOUND)
        assert other.get("/batches").json()["data"] == []
        for file_id in (file.id, batch["output_file_id"]):
            checks.ungoverned(other.get(f"/files/{file_id}"), ModelApi.NOT_FOUND)
            checks.ungoverned(other.get(f"/files/{file_id}/content"), ModelApi.NOT_FOUND)
    for unknown in ("batch_" + "0" * 32, "batch"):
        checks.ungoverned(site.caller.get(f"/batches/{unknown}"), ModelApi.BATCH_NOT_FOUND)
    for unknown in ("file-" + "0" * 32, batch["id"], batch["output_file_id"].replace("output", "errors")):
        checks.ungoverned(site.caller.get(f"/files/{unknown}"), ModelApi.NOT_FOUND)


# How it ends otherwise.


def test_a_cancelled_batch_runs_to_the_end_what_runs_and_nothing_else(
    launch: Launch, tmp_path: Path, upstreams: Upstreams, checks: Checks
) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    document = bundle.document(purpose("night", remote("engine", vendor.port), **NIGHT))
    site = _alone(launch, tmp_path, document, batch_running_max=3)
    batch = made(site.caller, *(line(f"{no}") for no in range(100)))
    until(lambda: len(vendor.requests) == 3)
    cancelling = site.caller.post(b"", path=f"/batches/{batch['id']}/cancel").json()
    assert (cancelling["status"], cancelling["cancelled_at"]) == ("cancelling", None)
    assert cancelling["cancelling_at"]
    gate.open()
    batch = ended(site.caller, batch, "cancelled")
    assert batch["request_counts"] == {"total": 100, "completed": 3, "failed": 97}
    found = results(site.caller, batch)
    assert len(found) == 100 and len(vendor.requests) == 3
    unrun = [each for each in found.values() if each["response"] is None]
    assert len(unrun) == 97 and {each["error"]["code"] for each in unrun} == {"batch_cancelled"}
    assert site.folder.money() == (0, 3 * COST)
    again = site.caller.post(b"", path=f"/batches/{batch['id']}/cancel")
    assert again.json() == batch


def test_what_the_plane_lacks_at_the_moment_is_waited_for_until_the_window_ends(launch: Launch, tmp_path: Path) -> None:
    document = bundle.document(purpose("night", sim("a"), requests_per_minute=2, **NIGHT))
    site = _alone(launch, tmp_path, document)
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0) as client:
        file = client.files.create(file=("a.jsonl", joined(line(f"{no}") for no in range(9))), purpose="batch")
        window: Any = "3s"
        endpoint: Any = "/v1/chat/completions"
        batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window=window)
    until(lambda: now(site.caller, {"id": batch.id})["request_counts"]["completed"] == 2)
    assert now(site.caller, {"id": batch.id})["request_counts"]["failed"] == 0
    done = ended(site.caller, {"id": batch.id}, "expired")
    assert done["request_counts"] == {"total": 9, "completed": 2, "failed": 7}
    assert done["expired_at"] and not done["completed_at"]
    errors = lines_of(site.caller, done["error_file_id"])
    assert {each["error"]["code"] for each in errors} == {"batch_expired"}


def test_a_batch_is_its_applications_and_goes_on_without_the_key_that_made_it(
    launch: Launch, upstreams: Upstreams, tmp_path: Path
) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    document = bundle.document(purpose("night", remote("engine", vendor.port), **NIGHT))
    site = _alone(launch, tmp_path, document, batch_running_max=1)
    other = site.caller_with(site.folder.issue_key())
    batch = made(site.caller, *(line(f"{no}") for no in range(3)))
    until(lambda: vendor.requests)
    site.folder.revoke(site.caller.api_key)
    assert site.caller.get(f"/batches/{batch['id']}").status_code == 401
    gate.open()
    assert ended(other, batch)["request_counts"] == {"total": 3, "completed": 3, "failed": 0}


def test_there_is_room_for_so_many_batches(
    launch: Launch, tmp_path: Path, upstreams: Upstreams, checks: Checks
) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    document = bundle.document(
        purpose("night", remote("engine", vendor.port), **NIGHT), purpose("theirs", sim("a"), tenant="umbra", **NIGHT)
    )
    site = _alone(launch, tmp_path, document, batches_open_max=1, batches_bytes_max=10_000)
    first = made(site.caller, line("a"))
    full = create(site.caller, line("b"))
    assert checks.raised(full) is Governed.QUEUE_SHED
    assert full.headers["retry-after"] == "60" and full.json()["terraflow"]["detail"] == "batches"
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    ended(theirs, made(theirs, line("c", "theirs")))
    assert checks.raised(create(theirs, line("d", "theirs", text="x" * 10_000))) is Governed.QUEUE_SHED
    with openai.OpenAI(base_url=site.plane.base_url, api_key=theirs.api_key, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as met:
            client.files.create(file=("a.jsonl", b"x" * 10_000), purpose="batch")
        assert checks.raised(met.value.response) is Governed.QUEUE_SHED
    gate.open()
    ended(site.caller, first)
    ended(site.caller, made(site.caller, line("b")))


def test_a_batch_whose_time_is_over_is_not_found(launch: Launch, tmp_path: Path, checks: Checks) -> None:
    site = _alone(launch, tmp_path, bundle.document(purpose("night", sim("a"), **NIGHT)), batch_keep_s=2)
    batch = ended(site.caller, made(site.caller, line("a")))
    time.sleep(2)
    checks.ungoverned(site.caller.get(f"/batches/{batch['id']}"), ModelApi.BATCH_NOT_FOUND)
    checks.ungoverned(site.caller.get(f"/files/{batch['output_file_id']}/content"), ModelApi.NOT_FOUND)


def test_the_result_of_an_erased_request_is_gone(site: Site) -> None:
    batch = ended(site.caller, made(site.caller, line("a"), line("b")))
    gone = results(site.caller, batch)["a"]["response"]["request_id"]
    assert site.folder.erase(gone) == 1
    content = site.caller.get(f"/files/{batch['output_file_id']}/content")
    assert [json.loads(each)["custom_id"] for each in content.content.splitlines()] == [f"b {CANARY}"]


def test_a_batch_goes_on_after_a_restart(launch: Launch, tmp_path: Path, upstreams: Upstreams) -> None:
    vendor = upstreams.open(answer())
    site = _alone(launch, tmp_path, bundle.document(purpose("night", remote("engine", vendor.port), **NIGHT)))
    batch = made(site.caller, *(line(f"{no}", text=f"number {no}.") for no in range(400)))
    until(lambda: now(site.caller, batch)["request_counts"]["completed"] > 20)
    site.plane.restart()
    assert now(site.caller, batch)["status"] == "in_progress"
    batch = ended(site.caller, batch)
    assert batch["request_counts"] == {"total": 400, "completed": 400, "failed": 0}
    assert len(results(site.caller, batch)) == 400
    assert len(vendor.requests) == 400
    assert site.folder.money() == (0, 400 * COST)


def test_what_a_stopping_plane_breaks_off_ends_and_what_waited_runs_after_it(
    launch: Launch, tmp_path: Path, upstreams: Upstreams
) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    engine = remote("engine", vendor.port, in_flight_max=1)
    document = bundle.document(purpose("night", engine, **NIGHT))
    site = _alone(launch, tmp_path, document, drain_s=1)
    batch = made(site.caller, *(line(f"{no}", text=f"number {no}.") for no in range(4)))
    until(lambda: vendor.requests)
    site.plane.stop()
    gate.open()
    site.plane.start()
    batch = ended(site.caller, batch)
    assert batch["request_counts"] == {"total": 4, "completed": 3, "failed": 1}
    [broken] = lines_of(site.caller, batch["error_file_id"])
    facts = broken["response"]["body"]["terraflow"]
    assert (facts["reason_code"], facts["detail"]) == (Governed.INTERNAL_ERROR, "plane_stopped")
    assert len({json.dumps(request.body) for request in vendor.requests}) == len(vendor.requests) == 4
    assert site.folder.money() == (0, 3 * COST + parse_usd(facts["cost_usd"]))
