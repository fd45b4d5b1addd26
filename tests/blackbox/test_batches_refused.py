"""Batches and files that are not accepted, and how the caller is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import answer_key, create, joined, line
from tests.harness.bundle import Json, purpose, sim
from tests.harness.caller import headers_of
from tests.harness.checks import Checks

DOCUMENT: Json = bundle.document(
    purpose("night", sim("a"), priority=3),
    purpose("day", sim("b")),
    purpose("withheld", sim("f"), priority=3),
    purpose("theirs", sim("g"), tenant="umbra", priority=3),
    withheld=("withheld",),
)


@pytest.fixture(scope="module")
def site(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Site:
    key = answer_key(tmp_path_factory.mktemp("key") / "key")
    return launch_shared(DOCUMENT, answer_key_file=key, batch_items_max=500)


@pytest.fixture
def client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0, timeout=20) as made:
        yield made


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
    site = launch(DOCUMENT, answer_key_file=answer_key(tmp_path / "key"), faults=True)
    expected = {"find_key": (503, Governed.EVIDENCE_UNAVAILABLE), "find_key broken": (500, Governed.INTERNAL_ERROR)}
    for fault, status_and_code in expected.items():
        with site.plane.fault(fault):
            response = site.caller.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == status_and_code
