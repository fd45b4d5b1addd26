"""Batches against the real process: how each item ends, whose a batch is, and what becomes of it."""

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
        for _ in range(3):
            one = ended(site.caller, made(site.caller, line("good")))
            results.append(client.files.retrieve(one["output_file_id"]))
        assert list(client.files.list(purpose="batch_output", limit=1)) == results[::-1]
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
