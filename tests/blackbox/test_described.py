"""schemathesis over OpenAI's description of chat completions and models, and over our own: no answer outside of what is
described, and none that is a failure of ours.

1. The cases are made of the description alone, so many and no more, the same in every run.
2. A description that is not true fails: one is planted.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.conftest import Launch, Site
from tests.clients.process import HERE, finished, program
from tests.harness import bundle
from tests.harness.bundle import PRICES, Json, purpose, sim

OPENAI: Json = json.loads((HERE / "openai_api" / "chat.json").read_text())
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CHATS_CHECKS = f"{CHECKS},described_stream"
OUR_CHECKS = f"{CHECKS},response_headers_conformance"
ANY_EVENT: Json = {"schema": {"type": "object"}}
"""schemathesis reads an event as an object of its fields, the description as that of the event's data."""
ERROR: Json = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
TOOL = "weather"
TOLD: Json = {
    "X-TerraFlow-Workload": {"type": "string", "enum": ["work"]},
    "X-TerraFlow-Sensitive-Types": {"type": "string", "enum": ["pii", "pci,credentials"]},
    "X-TerraFlow-Deadline-Ms": {"type": "string", "enum": ["20000"]},
    "X-TerraFlow-Run-Budget-Usd": {"type": "string", "enum": ["0.5"]},
}
# fmt: off
NAMES = [
    ("FunctionObject",                        "name"),
    ("ChatCompletionFunctions",               "name"),
    ("ChatCompletionFunctionCallOption",      "name"),
    ("ChatCompletionRequestFunctionMessage",  "name"),
    ("CustomToolChatCompletions",             "custom.name"),
    ("ChatCompletionNamedToolChoice",         "function.name"),
    ("ChatCompletionNamedToolChoiceCustom",   "custom.name"),
    ("ChatCompletionRequestAssistantMessage", "function_call.name"),
    ("ResponseFormatJsonSchema",              "json_schema.name"),
]
# fmt: on
"""Fields that are described in words as names; a tool's must also be on the contract's list."""


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    sound = PRICES | {"audio_input": 1_000_000, "audio_output": 1_000_000}
    model = sim("engine", prices=sound)
    listed = [TOOL, "web_search"]
    return launch_shared(bundle.document(purpose("work", model, tools=listed, output={"requested_schema": True})))


def _openai() -> Json:
    """OpenAI's description, and besides:

    1. Names are names, and a tool's is on the contract's list, which the description says in words or cannot say.
    2. An error has the shape of its errors, whatever the status: it names hardly any.
    3. Before the last chunk `finish_reason` and `logprobs` are null: so are they in its own examples of streams.
    4. A tool call's `type` is not the name of a schema, which a discriminator without a mapping would make it.
    """
    described = copy.deepcopy(OPENAI)
    schemas = described["components"]["schemas"]
    for schema, path in NAMES:
        at = schemas[schema]
        for name in path.split("."):
            at = at.get("anyOf", [at])[0]["properties"][name]
        at["enum"] = [TOOL]
    for schema, of in (
        ("ChatCompletionMessageToolCall", "function"),
        ("ChatCompletionMessageCustomToolCall", "custom"),
    ):
        schemas[schema]["properties"][of]["properties"]["name"]["minLength"] = 1
    for methods in described["paths"].values():
        for operation in methods.values():
            operation["responses"]["default"] = {"description": "", "content": ERROR}
    chunk = schemas["CreateChatCompletionStreamResponse"]["properties"]["choices"]["items"]["properties"]
    for field in ("finish_reason", "logprobs"):
        chunk[field] = {"anyOf": [chunk[field], {"type": "null"}]}
    del schemas["ChatCompletionMessageToolCalls"]["items"]["discriminator"]
    chat = described["paths"]["/chat/completions"]["post"]["responses"]["200"]["content"]
    chat["text/event-stream"] = ANY_EVENT
    return described


def _run(site: Site, described: Json, folder: Path, base_url: str, *more: str) -> tuple[int, str]:
    """How schemathesis ended, and what it wrote."""
    file = folder / "described.json"
    file.write_text(json.dumps(described))
    command = program(
        "schemathesis", "run", str(file), "--url", base_url, "--no-color", "--generation-deterministic",
        "-H", f"Authorization: Bearer {site.caller.api_key}", "--generation-with-security-parameters", "false",
        "--phases", "coverage,fuzzing", *more,
    )  # fmt: skip
    told = {"SCHEMATHESIS_HOOKS": str(HERE / "python" / "as_described.py"), "DESCRIPTION": str(file)}
    ended = finished(command, site, **told)
    return ended.returncode, ended.stdout + ended.stderr


def _permitted(site: Site) -> int:
    lines: list[Any] = [json.loads(line) for line in site.plane.log.read_text().splitlines()]
    return sum(line.get("reason") == "PERMITTED" for line in lines)


def test_openais_description(site: Site, tmp_path: Path) -> None:
    before = _permitted(site)
    status, said = _run(site, _openai(), tmp_path, site.plane.base_url, "-n", "100", "--checks", CHATS_CHECKS)
    assert status == 0, said
    assert _permitted(site) - before > 500


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("CreateChatCompletionResponse", "Response violates schema"),
        ("CreateChatCompletionStreamResponse", "described_stream"),
    ],
)
def test_a_description_that_is_not_true(schema: str, told: str, site: Site, tmp_path: Path) -> None:
    described = _openai()
    described["components"]["schemas"][schema]["required"] = ["no_such_field"]
    few = ("-n", "10", "--max-failures", "1", "--no-shrink", "--checks", CHATS_CHECKS)
    status, said = _run(site, described, tmp_path, site.plane.base_url, *few)
    assert status == 1
    assert told in said, said


def _ours(site: Site, asked: str) -> Json:
    """The plane's own description, and besides: ids that there are, and headers that let a request come to its body.
    What an event of a stream holds it does not say."""
    described: Json = site.caller.get("/openapi.json", root=True).json()
    known = {"models": "work", "evidence": asked, "requests": asked}
    for path, methods in described["paths"].items():
        of = path.split("/")[2]
        for operation in methods.values():
            content = operation["responses"]["200"]["content"]
            if "text/event-stream" in content:
                content["text/event-stream"] = ANY_EVENT
            for parameter in operation.get("parameters", ()):
                if parameter.get("name") == "id" and of in known:
                    parameter["schema"] = {"enum": [known[of], "none"]}
    for parameter in described["components"]["parameters"].values():
        if parameter["name"] in TOLD:
            parameter["schema"] = TOLD[parameter["name"]]
    return described


def test_our_own_description(site: Site, tmp_path: Path) -> None:
    asked = site.caller.ask("work").headers["x-terraflow-request-id"]
    before = _permitted(site)
    root = site.plane.base_url.removesuffix("/v1")
    status, said = _run(site, _ours(site, asked), tmp_path, root, "-n", "10", "--checks", OUR_CHECKS)
    assert status == 0, said
    assert _permitted(site) - before > 500
