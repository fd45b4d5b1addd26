"""Requests that no route answers: the vendors' own clients raise their error for a thing that is not there, and its
message says what to ask instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import openai
import pytest

from terraflow.core.reasons import ModelApi, reason
from terraflow.gateway.http.astray import ASTRAY, hint
from terraflow.gateway.http.openapi import document
from terraflow.gateway.http.routes import ROUTES
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.checks import Checks
from tests.harness.mouths import MESSAGES
from tests.harness.vendor_clients import ASKED


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one"))))


Openai = Callable[[str], openai.OpenAI]
Claude = Callable[[str], anthropic.Anthropic]


def _behind(site: Site, below: str) -> dict[str, Any]:
    """What either client is made with, for so much behind the plane's address."""
    address = site.plane.base_url.removesuffix("/v1")
    return {"base_url": address + below, "api_key": site.caller.api_key, "max_retries": 0}


@pytest.fixture
def open_ai(site: Site) -> Iterator[Openai]:
    with ExitStack() as made:
        yield lambda below: made.enter_context(openai.OpenAI(**_behind(site, below)))


@pytest.fixture
def claude(site: Site) -> Iterator[Claude]:
    with ExitStack() as made:
        yield lambda below: made.enter_context(anthropic.Anthropic(**_behind(site, below)))


CHAT: dict[str, Any] = {"model": "plain", "messages": ASKED}
MESSAGE: dict[str, Any] = CHAT | {"max_tokens": 9}

OF_OPENAI: list[tuple[str, Callable[[openai.OpenAI], Any], str]] = [
    ("/v1", lambda it: it.responses.create(model="plain", input="x"), "use chat completions"),
    ("/v1", lambda it: it.completions.create(model="plain", prompt="x"), "POST /v1/chat/completions"),
    ("/v1", lambda it: it.embeddings.create(model="plain", input="x"), "GET /openapi.json"),
    ("/v1", lambda it: it.images.generate(model="plain", prompt="x"), "GET /openapi.json"),
    ("/v1", lambda it: it.chat.completions.list(), "This path takes POST."),
    ("/v1", lambda it: it.chat.completions.retrieve("x"), "Answers are not kept"),
    ("/v1", lambda it: it.models.retrieve("two"), "GET /v1/models lists"),
    ("/v1", lambda it: it.models.delete("plain"), "This path takes GET."),
    ("", lambda it: it.chat.completions.create(**CHAT), "a base URL that ends in it"),
    ("/openai/deployments/plain", lambda it: it.chat.completions.create(**CHAT), "Azure's paths"),
]


@pytest.mark.parametrize(("below", "ask", "said"), OF_OPENAI, ids=range(len(OF_OPENAI)))
def test_openais_client(
    below: str, ask: Callable[[openai.OpenAI], Any], said: str, open_ai: Openai, checks: Checks
) -> None:
    with pytest.raises(openai.NotFoundError) as met:
        ask(open_ai(below))
    assert checks.raised(met.value.response) is ModelApi.NOT_FOUND
    assert said in met.value.message
    assert met.value.code == ModelApi.NOT_FOUND
    assert met.value.request_id == met.value.response.headers.get("x-terraflow-request-id")


def _batch(client: anthropic.Anthropic) -> Any:
    params: Any = MESSAGE
    return client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])


OF_ANTHROPIC: list[tuple[str, Callable[[anthropic.Anthropic], Any], str]] = [
    ("/v1", lambda it: it.messages.create(**MESSAGE), "a base URL without it"),
    ("", _batch, "POST /v1/batches"),
    ("", lambda it: it.beta.skills.list(), "GET /openapi.json"),
    ("", lambda it: it.models.retrieve("two"), "GET /v1/models lists"),
]


@pytest.mark.parametrize(("below", "ask", "said"), OF_ANTHROPIC, ids=range(len(OF_ANTHROPIC)))
def test_anthropics_client(below: str, ask: Callable[[anthropic.Anthropic], Any], said: str, claude: Claude) -> None:
    """It is spoken to in its vendor's shape, also where the path is of both vendors or of none."""
    with pytest.raises(anthropic.NotFoundError) as met:
        ask(claude(below))
    response = met.value.response
    body = response.json()
    MESSAGES.error(body, 404, reason(ModelApi.NOT_FOUND).meaning, None)
    assert body["error"]["code"] == ModelApi.NOT_FOUND
    assert said in body["error"]["message"]
    assert met.value.request_id == response.headers["x-terraflow-request-id"] == body["request_id"]


def test_models_tell_the_requests_id_where_either_vendors_client_looks_for_it(open_ai: Openai, claude: Claude) -> None:
    ours = "x-terraflow-request-id"
    first = open_ai("/v1").models.with_raw_response.list()
    assert first.headers["x-request-id"] == first.headers[ours]
    for other in (claude("").models.with_raw_response.list(), claude("").models.with_raw_response.retrieve("one")):
        assert other.headers["request-id"] == other.headers[ours]


def test_a_path_with_a_slash_behind_it(site: Site) -> None:
    refused = site.caller.post(CHAT, path="/chat/completions/").json()["error"]["message"]
    assert refused.endswith("The path must have no slash at its end.")


@pytest.mark.parametrize("row", ASTRAY, ids=lambda row: row.path)
def test_a_row_is_met_and_stands_in_nobodys_way(row: Any) -> None:
    below = row.path + "x" if row.path.endswith("/") else row.path
    assert hint(below, below, ROUTES) == row.hint
    assert all((method, below) not in ROUTES for method in ("GET", "POST", "DELETE"))


def test_the_description_says_that_models_answer_either_vendors_client() -> None:
    paths = json.loads(document())["paths"]
    for path in ("/v1/models", "/v1/models/{id}"):
        asked = paths[path]["get"]
        assert [each["name"] for each in asked["parameters"] if each["in"] == "header"] == ["anthropic-version"]
        for response in asked["responses"].values():
            assert {"X-Request-Id", "Request-Id"} <= set(response["headers"])
        shapes = asked["responses"]["404"]["content"]["application/json"]["schema"]["anyOf"]
        assert [each["$ref"].rpartition("/")[2] for each in shapes] == ["OpenAIError", "AnthropicError"]
