"""`/openapi.json`: every route of `/v1`, with its headers, bodies and errors.

1. Every row of ROUTES is described, by the operation that it names.
2. Bodies that come in are described by the types that parse them, answers by `shapes`.
3. Errors are the registry's rows that are built: on the mouths every governed code, elsewhere those of the row.
4. Three fields of an invocation that have codes of their own, and those that it shares with chat, are checked behind
   its type: their schemas are given here, the shared ones from chat's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from terraflow import __version__
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import CODES, PLANNED, Governed, ModelApi, reason
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES
from terraflow.gateway import declaring, feedback
from terraflow.gateway.http import shapes
from terraflow.gateway.http.operations import Code, Json, Operation
from terraflow.gateway.http.routes import ROUTES, Route
from terraflow.gateway.mouths import chat_shape, invocations, messages_shape
from terraflow.gateway.mouths.anthropic_messages import MESSAGES
from terraflow.gateway.mouths.errors import ungoverned_status

EVERYWHERE: Sequence[Code] = (
    Governed.APP_UNAUTHENTICATED,
    Governed.QUEUE_SHED,
    ModelApi.INVALID_REQUEST,
    ModelApi.NOT_FOUND,
    Governed.INTERNAL_ERROR,
    Governed.EVIDENCE_UNAVAILABLE,
)
_RUN_ID = {"type": "string", "pattern": f"^{declaring.RUN.pattern}$"}
_ONE_OF = {"data_class": list(DATA_CLASSES), "sensitive_type": list(SENSITIVE_TYPES)}
# fmt: off
_REQUEST_HEADERS: dict[str, tuple[str, Json]] = {
    "X-TerraFlow-Workload":        ("The workload.", {"type": "string", "pattern": f"^{declaring.WORKLOAD.pattern}$"}),
    "X-TerraFlow-Data-Class":      ("How sensitive the caller says it is.", {"enum": _ONE_OF["data_class"]}),
    "X-TerraFlow-Sensitive-Types": ("Sensitive types, by commas.", {"type": "string"}),
    "X-TerraFlow-Deadline-Ms":     ("How long it may take.", {"type": "integer", "minimum": 1}),
    "X-TerraFlow-Run-Id":          ("The run it is part of.", _RUN_ID),
    "X-TerraFlow-Run-Budget-Usd":  ("The run's budget, in decimal dollars.", {"type": "string"}),
    "Idempotency-Key":             ("One key, one run.", {"type": "string", "minLength": 1, "maxLength": 255}),
}
_ANSWER_HEADERS: dict[str, str] = {
    "X-TerraFlow-Request-Id":        "The request's id.",
    "X-Request-Id":                  "The same, where OpenAI's clients look for it.",
    "Request-Id":                    "The same, where Anthropic's clients look for it.",
    "X-TerraFlow-Reason":            "The reason code of a governed answer that is no flowing stream.",
    "X-TerraFlow-Capability":        "The capability that answered, or was pinned.",
    "X-TerraFlow-Cost-Usd":          "What it cost, in decimal dollars.",
    "X-TerraFlow-Savings-Usd":       "Of a cached answer: what a call would have cost.",
    "X-TerraFlow-Idempotent-Replay": "`true` on a replay.",
    "Retry-After":                   "Seconds, where waiting helps.",
    "X-Should-Retry":                "`false` where the same request would be refused again.",
    "WWW-Authenticate":              "`Bearer`: the key is absent, or none that is known.",
}
# fmt: on
_OF_BATCHES = ("X-TerraFlow-Workload", "X-TerraFlow-Data-Class", "X-TerraFlow-Sensitive-Types")
_IDS = ("X-TerraFlow-Request-Id", "X-Request-Id", "Request-Id")
_NO_ERROR, _NO_ANSWER = ("Retry-After", "X-Should-Retry"), ("X-TerraFlow-Savings-Usd",)
_UNAUTHENTICATED, _CHALLENGE = 401, "WWW-Authenticate"
_ERRORS = (shapes.OpenAIError, shapes.OpenAIRefusal, shapes.AnthropicError, shapes.AnthropicRefusal)


_VERSION: Json = {
    "name": "anthropic-version",
    "in": "header",
    "required": False,
    "description": "With it errors are in Anthropic's shape, and the request's id stands in Request-Id.",
    "schema": {"type": "string"},
}


@cache
def document() -> bytes:
    """The OpenAPI document, indented JSON."""
    paths: dict[str, Json] = {}
    for (method, path), route in ROUTES.items():
        shown, verb = path.replace("*", "{id}"), method.lower()
        named = f"{verb}{path.removeprefix('/v1').replace('/', '_').replace('*', 'id')}"
        paths.setdefault(shown, {})[verb] = _operation(named, shown, route)
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "TerraFlow",
            "version": __version__,
            "description": "A governed gateway for language models: the model API of a plane.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "parameters": {name: _parameter(name, *row) for name, row in _REQUEST_HEADERS.items()},
            "headers": {
                name: {"description": said, "schema": {"type": "string"}} for name, said in _ANSWER_HEADERS.items()
            },
            "schemas": _schemas(),
        },
    }
    return json.dumps(made, indent=1, ensure_ascii=False).encode() + b"\n"


def _parameter(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _operation(named: str, path: str, route: Route) -> Json:
    operation = route.operation
    made: Json = {"operationId": named, "summary": operation.summary, "responses": _responses(route)}
    parameters = (
        [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}] if "{id}" in path else []
    )
    if operation.governed:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in _REQUEST_HEADERS]
    if operation.declares:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in _OF_BATCHES]
    if operation.either:
        parameters.append(_VERSION)
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()]
    if parameters:
        made["parameters"] = parameters
    content: Json = {kind: {"schema": schema} for kind, schema in operation.bodies.items()}
    if operation.body is not None:
        content["application/json"] = {"schema": _ref(operation.body), "example": operation.example}
    if content:
        made["requestBody"] = {"required": True, "content": content}
    return made


def _responses(route: Route) -> Json:
    operation = route.operation
    answered: Json = {"application/jsonl": {"schema": {"type": "string"}}}
    if operation.answer is not None:
        answered = {"application/json": {"schema": _ref(operation.answer.__name__)}}
    if operation.answered is not None:
        answered["application/json"]["example"] = operation.answered
    if operation.streams:
        answered["text/event-stream"] = {"schema": {"type": "string"}}
    headers = _answer_headers(route, _NO_ERROR)
    made = {"200": {"description": "The answer.", "headers": _headers(headers), "content": answered}}
    if operation.accepted:
        made["202"] = {"description": "Its end is not recorded yet.", "headers": _headers(headers), "content": answered}
    vendor = "Anthropic" if route.mouth is MESSAGES else "OpenAI"
    error = _ref(f"{vendor}Error")
    if operation.governed:
        error = {"anyOf": [_ref(f"{vendor}Refusal"), error]}
    if operation.either:
        error = {"anyOf": [_ref("OpenAIError"), _ref("AnthropicError")]}
    headers = _answer_headers(route, _NO_ANSWER)
    for status, codes in sorted(_by_status(operation).items()):
        made[str(status)] = {
            "description": ", ".join(codes),
            "headers": _headers([*headers, _CHALLENGE] if status == _UNAUTHENTICATED else headers),
            "content": {"application/json": {"schema": error}},
        }
    return made


def _answer_headers(route: Route, without: Sequence[str]) -> list[str]:
    operation = route.operation
    other = "" if operation.either else "X-Request-Id" if route.mouth is MESSAGES else "Request-Id"
    of_all = (*_IDS, *_NO_ERROR)
    return [
        name
        for name in _ANSWER_HEADERS
        if name not in (other, _CHALLENGE) and name not in without and (operation.governed or name in of_all)
    ]


def _by_status(operation: Operation) -> dict[int, list[str]]:
    codes: list[Code] = [*EVERYWHERE, *operation.errors]
    if operation.governed:
        codes += [code for code in CODES if isinstance(code, Governed) and reason(code).since != PLANNED]
    found: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        status = reason(code).status if operation.governed else ungoverned_status(Refuse(reason=code))
        if status is not None and status >= 400:
            found.setdefault(status, []).append(code.value)
    return {status: sorted(set(named)) for status, named in found.items()}


def _headers(names: Iterable[str]) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> Json:
    made: Json = {"Feedback": _feedback()}
    made |= _components("Chat", chat_shape.ChatBody)
    made |= _components("Messages", messages_shape.MessagesBody, messages_shape.CountedBody)
    made |= _components("Invocation", invocations.Body)
    answers = dict.fromkeys(row.operation.answer for row in ROUTES.values() if row.operation.answer is not None)
    made |= _components("", *_ERRORS, *answers)
    body, chat = made["Invocation.Body"], made["Chat.ChatBody"]["properties"]
    for name in invocations.SHARED:
        body["properties"][name] = chat[name] if name != "messages" else _or_null(chat[name])
    body["properties"] |= {
        "data_class": _or_null({"enum": _ONE_OF["data_class"]}),
        "sensitive_types": _or_null({"type": "array", "items": {"enum": _ONE_OF["sensitive_type"]}}),
        "deadline_ms": _or_null({"type": "integer", "minimum": 1, "maximum": declaring.DEADLINE_MS_MAX}),
    }
    made["Invocation.RunBody"]["properties"]["id"] = _RUN_ID
    # A choice of whole objects (oneOf) would say it shorter, but makers of clients then forget every other field.
    body["if"], body["else"] = _has("input"), _has("messages")
    body["then"] = {"properties": {"messages": {"type": "null"}}}
    return made


def _components(prefix: str, *types: type[msgspec.Struct]) -> Json:
    """The schemas of types and of all that they hold, named by the prefix and their class."""
    dot = f"{prefix}." if prefix else ""
    _, found = msgspec.json.schema_components(types, ref_template=f"#/components/schemas/{dot}{{name}}")
    text = json.dumps({f"{dot}{name}": schema for name, schema in found.items()})
    named: Json = json.loads(text.replace(f'"{dot}_', f'"{dot}').replace(f"/{dot}_", f"/{dot}"))
    if len(named) != len(found):
        raise ValueError(f"two types of {prefix or 'the answers'} would have one name")
    for schema in named.values():
        schema.pop("title", None)
        for place in schema.get("properties", {}).values():
            # Makers of clients take whatever has a default for always there, and make their callers write it.
            if place.get("default", schema) is None:
                del place["default"]
    return named


def _has(name: str) -> Json:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _feedback() -> Json:
    labels = {"type": "array", "items": {"enum": list(feedback.LABELS)}, "uniqueItems": True}
    return {
        "description": "What an application says of an answer: at least one of the three.",
        "type": "object",
        "properties": {
            "rating": _or_null({"enum": list(feedback.RATINGS)}),
            "score": _or_null({"type": "integer", "minimum": 0, "maximum": feedback.SCORE_MAX}),
            "labels": _or_null(labels),
        },
        "additionalProperties": False,
    }
