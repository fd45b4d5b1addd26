"""`/openapi.json`: it is whole, its schemas compile, and what the plane really takes and answers is what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from terraflow.core.reasons import CODES, reason
from terraflow.gateway.http.routes import ROUTES
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import answer_key, joined, line
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import body_of, headers_of
from tests.harness.mouths import CHAT, MESSAGES, MOUTHS, Mouth
from tests.harness.upstreams import Upstreams, completion
from tests.providers.vendor import says
from tools.occurrences import OCCURRENCES, place_of

Json = dict[str, Any]


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    plain = purpose("plain", sim("one"), response_cache={"ttl_s": 60})
    return launch_shared(bundle.document(plain, purpose("low", sim("two"), data_classes=["public"])))


@pytest.fixture(scope="module")
def described(site: Site) -> Json:
    response = httpx2.get(site.plane.base_url.removesuffix("/v1") + "/openapi.json")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    document: Json = response.json()
    return document


def conforms(described: Json, schema: Json, value: Any) -> bool:
    """Whether a value is what a schema of the document says."""
    return jsonschema_rs.validator_for(schema | {"components": described["components"]}).is_valid(value)


def agrees(described: Json, response: httpx2.Response, path: str) -> Json:
    """The body of a response that is what the document says of its path, method and status."""
    operation = described["paths"][path][response.request.method.lower()]
    said = operation["responses"][str(response.status_code)]
    assert {name.lower() for name in said["headers"]} >= {
        name for name in response.headers if name.startswith(("x-", "request-id", "retry-after", "www-authenticate"))
    }
    body: Json = response.json()
    schema = said["content"][response.headers["content-type"]]["schema"]
    assert conforms(described, schema, body), body
    if response.status_code >= 400:
        assert body["error"]["code"] in said["description"].split(", ")
    return body


def test_every_route_is_described(described: Json) -> None:
    assert described["openapi"] == "3.1.0"
    found = {(verb.upper(), path) for path, verbs in described["paths"].items() for verb in verbs}
    assert found == {(method, path.replace("*", "{id}")) for method, path in ROUTES}
    named = [operation["operationId"] for verbs in described["paths"].values() for operation in verbs.values()]
    assert len(set(named)) == len(named) == len(ROUTES)


def test_every_reference_leads_somewhere_and_every_schema_compiles(described: Json) -> None:
    for reference in set(re.findall(r'"#/([^"]+)"', json.dumps(described))):
        at = described
        for step in reference.split("/"):
            at = at[step]
    for name in described["components"]["schemas"]:
        conforms(described, {"$ref": f"#/components/schemas/{name}"}, None)


def test_every_code_is_described_where_it_occurs_and_nowhere_else(described: Json) -> None:
    said: dict[str | None, set[str]] = {}
    for path, verbs in described["paths"].items():
        codes = said.setdefault(place_of(path), set())
        for operation in verbs.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    codes.update(response["description"].split(", "))
    for place in said:
        assert place is not None
        errors = {
            code
            for code, places in OCCURRENCES.items()
            if place in places and next(row.status or 0 for row in map(reason, CODES) if row.code == code) >= 400
        }
        assert errors == said[place], place


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"input": "Hello"}, True),
        ({"messages": [{"role": "user", "content": "Hello"}]}, True),
        ({"input": "Hello", "messages": None}, True),
        ({"input": None, "messages": [{"role": "user", "content": "Hello"}]}, True),
        ({"input": "Hello", "messages": [{"role": "user", "content": "Hello"}]}, False),
        ({"input": None, "messages": None}, False),
        ({}, False),
    ],
)
def test_an_invocation_has_one_of_its_two_inputs(given: Json, taken: bool, site: Site, described: Json) -> None:
    assert conforms(described, {"$ref": "#/components/schemas/Invocation.Body"}, given) is taken
    assert site.caller.post(given, path="/invocations").status_code == (200 if taken else 400)


def test_what_comes_in_is_no_choice_of_objects(described: Json) -> None:
    """Makers of clients take a choice beside fields for the whole, and forget the fields."""
    for verbs in described["paths"].values():
        for operation in verbs.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                name = body["schema"].get("$ref", "").rpartition("/")[2]
                schema = described["components"]["schemas"][name] if name else body["schema"]
                assert schema["properties"] and not {"oneOf", "anyOf", "allOf"} & schema.keys(), name


@pytest.mark.parametrize("path", [path for (_, path), row in ROUTES.items() if row.operation.example is not None])
def test_examples_are_of_their_schema_and_are_taken(path: str, site: Site, described: Json) -> None:
    shown = path.replace("*", "{id}")
    content = described["paths"][shown]["post"]["requestBody"]["content"]["application/json"]
    assert conforms(described, content["schema"], content["example"])
    asked = site.caller.ask().headers["x-terraflow-request-id"]
    example = {key: value for key, value in content["example"].items() if key not in ("workload", "output_schema")}
    response = site.caller.post(example, path=path.replace("*", asked).removeprefix("/v1"))
    assert response.status_code == 200, response.text
    agrees(described, response, shown)


def test_no_default_is_null(described: Json) -> None:
    """Makers of clients take what has a default for always there, and make their callers write it."""
    for name, schema in described["components"]["schemas"].items():
        for field, place in schema.get("properties", {}).items():
            assert place.get("default", name) is not None, (name, field)


@pytest.mark.parametrize("path", [path for (_, path), row in ROUTES.items() if row.operation.answered is not None])
def test_examples_of_answers_are_of_their_schema(path: str, described: Json) -> None:
    [operation] = described["paths"][path].values()
    content = operation["responses"]["200"]["content"]["application/json"]
    assert conforms(described, content["schema"], content["example"])


@pytest.mark.parametrize("mouth", MOUTHS, ids=lambda mouth: mouth.name)
def test_answers_and_errors_of_a_mouth(mouth: Mouth, site: Site, described: Json) -> None:
    path, body = f"/v1{mouth.path}", mouth.asks(body_of())

    def post(sent: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
        return site.caller.post(sent, headers, mouth.path)

    for headers in ({}, headers_of(key=f"described {mouth.name}"), headers_of(key=f"described {mouth.name}")):
        assert post(body, headers).status_code == 200
        agrees(described, post(body, headers), path)
    for response, status in (
        (post(b"{"), 400),
        (post(body, headers_of(data_class="secret")), 400),
        (post(body, {"Authorization": "Bearer tf_none"}), 401),
        (post(body, headers_of("low", data_class="internal")), 403),
        (post(body, headers_of("nothing")), 403),
    ):
        assert response.status_code == status
        agrees(described, response, path)


def test_what_a_vendor_says_of_its_answer_is_described(launch: Launch, upstreams: Upstreams, described: Json) -> None:
    said = completion("Certainly.") | {"system_fingerprint": "fp_1", "service_tier": "priority"}
    vendor = upstreams.open(says(200, said))
    caller = launch(bundle.document(purpose("plain", remote("engine", vendor.port)))).caller
    for mouth in MOUTHS:
        answer = agrees(described, caller.post(mouth.asks(body_of()), path=mouth.path), f"/v1{mouth.path}")
        if mouth is CHAT:
            assert (answer["system_fingerprint"], answer["service_tier"]) == ("fp_1", "priority")
        if mouth is MESSAGES:
            assert answer["usage"]["service_tier"] == "priority"


def test_an_error_in_anthropics_own_word_is_described(site: Site, described: Json) -> None:
    asked = MESSAGES.asks(body_of()) | {"thread": {"type": "create"}}
    error = agrees(described, site.caller.post(asked, path=MESSAGES.path), f"/v1{MESSAGES.path}")["error"]
    assert error["details"] == {"error_code": "thread_unsupported_request"}


def test_reads_and_acts(site: Site, described: Json) -> None:
    asked = site.caller.ask().headers["x-terraflow-request-id"]
    for path, named, status in (
        ("/v1/models", "", 200),
        ("/v1/models/{id}", "plain", 200),
        ("/v1/models/{id}", "nothing", 404),
        ("/v1/evidence/{id}", asked, 200),
        ("/v1/evidence/{id}", "req_0", 404),
        ("/v1/reviews/{id}", "rev_0", 404),
    ):
        response = site.caller.get(path.removeprefix("/v1").replace("{id}", named))
        assert response.status_code == status
        agrees(described, response, path)
    agrees(described, site.caller.cancel(asked), "/v1/requests/{id}")


def test_batches_and_files(launch: Launch, tmp_path: Path, described: Json) -> None:
    document = bundle.document(purpose("night", sim("a"), priority=3), purpose("day", sim("b")))
    site = launch(document, answer_key_file=answer_key(tmp_path / "key"))
    base, lines = site.plane.base_url, joined([line("one"), line("two")])
    with httpx2.Client(headers=site.caller.authorization) as http:
        form = {"data": {"purpose": "batch"}, "files": {"file": ("asked.jsonl", lines)}}
        file = agrees(described, http.post(f"{base}/files", **form), "/v1/files")
        agrees(described, http.post(f"{base}/files", data={"purpose": "batch"}), "/v1/files")
        agrees(described, http.get(f"{base}/files/{file['id']}"), "/v1/files/{id}")
        agrees(described, http.get(f"{base}/files?purpose=batch&limit=1"), "/v1/files")
        agrees(described, http.get(f"{base}/files?order=up"), "/v1/files")
        content = http.get(f"{base}/files/{file['id']}/content")
        assert (
            content.headers["content-type"]
            in described["paths"]["/v1/files/{id}/content"]["get"]["responses"]["200"]["content"]
        )
        asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "metadata": {"for": "the report"}}
        body = described["paths"]["/v1/batches"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert conforms(described, body, asked)
        batch = agrees(described, http.post(f"{base}/batches", json=asked), "/v1/batches")
        inline = {"content": lines, "headers": {"Content-Type": "application/jsonl"}}
        agrees(described, http.post(f"{base}/batches", **inline), "/v1/batches")
        for workload in ("day", "nothing"):
            inline["headers"]["X-TerraFlow-Workload"] = workload
            assert agrees(described, http.post(f"{base}/batches", **inline), "/v1/batches")["error"]
        agrees(described, http.get(f"{base}/batches?limit=1"), "/v1/batches")
        for named in (batch["id"], "batch_0"):
            agrees(described, http.get(f"{base}/batches/{named}"), "/v1/batches/{id}")
            agrees(described, http.post(f"{base}/batches/{named}/cancel"), "/v1/batches/{id}/cancel")
        for _ in range(2):
            agrees(described, http.delete(f"{base}/files/{file['id']}"), "/v1/files/{id}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("Invocation.Body", {}),
        ("Invocation.Body", {"input": "a", "messages": [{"role": "user", "content": "b"}]}),
        ("Invocation.Body", {"input": "a", "stream": True}),
        ("Invocation.Body", {"input": "a", "data_class": "secret"}),
        ("Invocation.Body", {"input": "a", "run": {"id": "a b"}}),
        ("Feedback", {"rating": "good"}),
        ("Feedback", {"comment": "text"}),
        ("Chat.ChatBody", {"messages": []}),
        ("Messages.MessagesBody", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_what_the_plane_refuses_is_not_of_its_schema(schema: str, value: Json, described: Json) -> None:
    assert not conforms(described, {"$ref": f"#/components/schemas/{schema}"}, value)


def test_it_is_for_everybody_and_for_reading(site: Site) -> None:
    url = site.plane.base_url.removesuffix("/v1") + "/openapi.json"
    head = httpx2.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert httpx2.post(url).json()["error"]["code"] == "NOT_FOUND"
